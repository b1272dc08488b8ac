// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>

#include <memory>
#include <string>
#include <vector>

#include "checkpoints/format/envelope.hpp"
#include "checkpoints/format/hdf5.hpp"
#include "checkpoints/format/index.hpp"

namespace lockstep::checkpoints {

/// The HDF5 part of a file, complete but for the bytes of the arrays.
struct Layout {
  std::unique_ptr<MemoryFile> metadata;
  std::vector<ArrayLocation> places;  ///< places in the order of Archive::array_paths
};

/// Lets HDF5 lay out groups, attributes and arrays, behind room for the envelope. Equal archives give equal bytes.
/// @param front_bytes  the room in front: 0 makes a plain HDF5 file
Layout lay_out(const Archive& archive, std::uint64_t front_bytes = kEnvelopeBytes);

/// Reads groups, attributes and arrays back.
///
/// Nothing in the file is followed out of it, and nothing is believed: links must be hard links, arrays contiguous, in
/// `places`, of a known type and of the size their shape claims.
/// @param metadata  the file without the arrays' bytes
/// @param bytes     of each of `places`
/// @param owner     keeps `bytes` alive
/// @throws CheckpointError  with `path` and the object at fault
Archive read_tree(const std::string& path, MemoryFile& metadata, const std::vector<ArrayLocation>& places,
                  const std::vector<std::span<std::byte>>& bytes, const std::shared_ptr<const void>& owner);

/// The checks of read_tree.
void check_tree(const std::string& path, MemoryFile& metadata, const std::vector<ArrayLocation>& places);

/// Reads groups and attributes back, and no array.
Archive read_tree_groups(const std::string& path, MemoryFile& metadata, const std::vector<ArrayLocation>& places);

}  // namespace lockstep::checkpoints
