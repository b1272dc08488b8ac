// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep::checkpoints {

/// Where the bytes of one array lie in the file.
struct Place {
  std::string path;
  std::uint64_t offset = 0;  ///< 0 for an array without elements
  std::uint64_t nbytes = 0;
};

inline constexpr std::size_t kNoArray = static_cast<std::size_t>(-1);

/// A stretch of the file with a digest of its own. It belongs to one array, or to HDF5's metadata.
struct Piece {
  std::uint64_t offset = 0;
  std::uint64_t nbytes = 0;      ///< at most 1 MiB
  std::size_t array = kNoArray;  ///< index of its Place
};

/// The end of a file, behind the HDF5 part: where each array lies, in order of the archive, and a digest of each piece.
/// With it damage is found and named before HDF5 sees a byte.
struct Trailer {
  std::vector<Place> places;
  std::vector<std::uint64_t> digests;  ///< of the pieces, in order

  std::vector<std::byte> encode() const;
  /// None when the bytes are malformed.
  static std::optional<Trailer> decode(std::span<const std::byte> bytes);
};

/// Cuts [begin, end) at the borders of the arrays and, between those, at every MiB.
/// None when the places overlap or lie outside.
std::optional<std::vector<Piece>> cut_into_pieces(const std::vector<Place>& places, std::uint64_t begin,
                                                  std::uint64_t end);

}  // namespace lockstep::checkpoints
