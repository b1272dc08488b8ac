// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoints/format/digest.hpp"
#include "checkpoints/format/elements.hpp"

namespace lockstep::checkpoints {

inline constexpr std::size_t kNoArray = static_cast<std::size_t>(-1);

/// The place where the bytes of one array lie in the file.
struct ArrayLocation {
  std::string path;
  std::uint64_t offset = 0;  ///< 0 for an array without elements
  std::uint64_t nbytes = 0;
  DType dtype = DType::uint8;
  std::vector<std::int64_t> shape;
  std::size_t first = kNoArray;  ///< index of the Place with the same array, if this is a second name of it
};

/// A summary of the bytes of one array.
struct Summary {
  Digest128 digest;
  Statistics statistics;
};

/// A stretch of the file with a digest of its own. It belongs to one array, or to HDF5's metadata.
struct Piece {
  std::uint64_t offset = 0;
  std::uint64_t nbytes = 0;      ///< the maximum is 1 MiB
  std::size_t array = kNoArray;  ///< index of its Place
};

/// The end of a file, behind the HDF5 part: the index of its arrays, in order of the archive, and a digest of each
/// piece. With it damage is found and named before HDF5 sees a byte, and the arrays are listed without HDF5.
struct Index {
  std::vector<ArrayLocation> places;
  std::vector<Summary> summaries;      ///< summaries of the arrays, in the same order
  std::vector<std::uint64_t> digests;  ///< digests of the pieces, in order

  std::vector<std::byte> encode() const;
  /// None when the bytes are malformed.
  static std::optional<Index> decode(std::span<const std::byte> bytes);
};

/// Cuts [begin, end) at the borders of the arrays and, between those, at every MiB. None when the places overlap or lie
/// outside. Second names are skipped.
std::optional<std::vector<Piece>> cut_into_pieces(const std::vector<ArrayLocation>& places, std::uint64_t begin,
                                                  std::uint64_t end);

/// Calls `work(first, last)` for shares of [0, pieces.size()) of about as many bytes, one for each thread, and waits
/// for all. Few bytes are one share, on the calling thread.
/// @throws  what the share that failed first in the order of the pieces threw
void for_each_parallel_piece(const std::vector<Piece>& pieces, int threads,
                             const std::function<void(std::size_t first, std::size_t last)>& work);

}  // namespace lockstep::checkpoints
