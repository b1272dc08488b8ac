// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>

#include <cstdint>
#include <optional>
#include <string>

#include "checkpoints/format/digest.hpp"
#include "checkpoints/format/envelope.hpp"
#include "checkpoints/format/index.hpp"
#include "checkpoints/format/transfer.hpp"

namespace lockstep::checkpoints {

/// The values that identify a file: two with equal seals hold the same archive.
struct Seal {
  std::uint64_t step = 0;
  Digest128 digest;
  bool operator==(const Seal&) const = default;
};

/// Writes a new file and fsyncs it. A failure leaves it behind, unfinished.
/// @param threads  compute digests and statistics and write, each a stretch of the file; the bytes are the same
Seal write_state_file(const std::string& path, std::int64_t step, const Archive& archive, FilePart part = {},
                      int threads = 1);

/// The arrays of one part: about as many bytes as the others, in the order of the archive. Groups and attributes are in
/// part 0, second names with the first ones.
Archive archive_part(const Archive& archive, FilePart part);

/// Reads the beginning of a file and checks it: enough to distinguish a complete file from any other, but not to find
/// damage.
Seal read_seal(const std::string& path);

/// Reads a file into memory and checks every byte before HDF5 sees one.
/// @param step  set to the step the file was written at
Archive read_state_file(const std::string& path, std::uint64_t& step, const RestoreTargets& targets = {});

/// Checks every byte and the tree, and keeps nothing.
/// @return  the step the file was written at
std::uint64_t verify_state_file(const std::string& path, int threads);

/// What a file says about its bytes.
struct FileContents {
  Envelope envelope;
  Index index;
  std::vector<Piece> pieces;  ///< stretches with the digests of the index, in the same order
};

/// Reads and checks the envelope and the table of digests, and no array.
FileContents read_state_contents(const std::string& path);

/// Reads the HDF5 metadata alone: groups and attributes.
Archive read_state_groups(const std::string& path);

/// Reads and checks one array; none when the file has no such.
std::optional<Array> read_state_array(const std::string& path, const std::string& name);

}  // namespace lockstep::checkpoints
