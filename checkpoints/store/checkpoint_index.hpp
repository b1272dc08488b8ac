// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "checkpoints/format/elements.hpp"

// The content of a checkpoint, without reading its arrays: for programs that look into checkpoints.
namespace lockstep::checkpoints {

struct IndexedArray {
  std::string path;
  DType dtype = DType::uint8;
  std::vector<std::int64_t> shape;
  std::uint64_t nbytes = 0;
  std::string digest = {};  ///< array_digest of its bytes
  Statistics statistics = {};
  std::string first_path = {};  ///< first path of the array, if this is a second name of it; else empty
};

struct CheckpointIndex {
  std::int64_t step = 0;
  std::string writer;            ///< program and version
  std::uint64_t file_bytes = 0;  ///< total size of all files
  std::string digest;            ///< 32 hexadecimal digits: of the index, so of all content; the checkpoint's name
  std::vector<IndexedArray> arrays;
};

/// Reads the index of a checkpoint folder or of a state file. Its digest is checked, those of the arrays are not.
/// @throws CheckpointError  as read() in store.hpp
CheckpointIndex read_checkpoint_index(const std::string& path);

/// Reads groups and attributes, and no array.
Archive read_groups(const std::string& path);

/// Reads one array and checks its digests.
/// @param array  its path in the archive
/// @throws CheckpointError  as read(), and when the array does not exist
Array read_array(const std::string& path, const std::string& array);

/// 32 hexadecimal digits that depend on nothing but the bytes: the XXH3 digest of 128 bits of the 64-bit digests of
/// each MiB.
std::string array_digest(std::span<const std::byte> bytes);

/// Which arrays below `group` hold NaN or infinity, "" when none does:
/// "/model/params/w holds 2 NaN and 1 infinite elements, the first at [0, 3]". Goes by the index; only an array that is
/// named is read.
/// @param path  a checkpoint's folder or a state file
/// @throws CheckpointError  as read_checkpoint_index()
std::string nonfinite_in(const std::string& path, const std::string& group);

}  // namespace lockstep::checkpoints
