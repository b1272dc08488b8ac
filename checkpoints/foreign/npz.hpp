// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "checkpoints/disk/disk.hpp"
#include "checkpoints/foreign/foreign.hpp"
#include "checkpoints/foreign/zip.hpp"

/// NumPy's .npz: a zip archive with a record NAME.npy for every array, which is a line of text in front of its bytes.
namespace lockstep::checkpoints {

inline constexpr const char* kMetadataRecord = "__metadata__.json";

/// The content of the line as it is written.
struct NpyLine {
  std::string descr;  ///< the element type, such as "<f4"
  bool is_column_major = false;
  std::vector<std::int64_t> shape;
  std::size_t bytes = 0;  ///< size of everything before the elements
};

/// @param record  the array, or its beginning
/// @throws CheckpointError  without a path
NpyLine parse_npy_line(std::span<const std::byte> record);

/// The same with an element type that a tensor can have.
struct NpyHeader {
  DType dtype = DType::uint8;
  bool is_big_endian = false;
  bool is_column_major = false;
  std::vector<std::int64_t> shape;
  std::size_t bytes = 0;
};

/// @throws CheckpointError  without a path
NpyHeader parse_npy(std::span<const std::byte> record);

/// Records that are no .npy are left out. So are arrays of texts, objects and records beside other arrays.
/// @param left_out  where given, descriptions of those arrays, see ForeignReading
Archive read_npz(const Zip& zip, std::vector<std::string>* left_out = nullptr);

void write_npz(NewFile& file, const std::vector<NamedArray>& arrays, const ForeignMetadata& metadata);

}  // namespace lockstep::checkpoints
