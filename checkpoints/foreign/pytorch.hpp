// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "checkpoints/disk/disk.hpp"
#include "checkpoints/foreign/foreign.hpp"
#include "checkpoints/foreign/zip.hpp"

/// PyTorch's .pt: a zip archive of a pickle, data.pkl, and a record of bytes for every storage.
namespace lockstep::checkpoints {

/// Whether a zip archive is one.
bool is_pytorch(const Zip& zip);

/// @param left_out  where given, descriptions of what was left out, see ForeignReading
Archive read_pytorch(const Zip& zip, std::vector<std::string>* left_out = nullptr);
/// The format before version 1.6, which is no zip archive.
Archive read_legacy_pytorch(const ByteSource& source, std::vector<std::string>* left_out = nullptr);

void write_pytorch(NewFile& file, const std::vector<NamedArray>& arrays, const ForeignMetadata& metadata);
void write_pytorch(NewFile& file, const PythonValue& value, const ForeignMetadata& metadata = {});

/// Copies elements to row-major order.
/// @param strides  of each dimension, in bytes; they lead to no byte outside of `from`
void gather(std::span<const std::byte> from, const std::vector<std::int64_t>& shape,
            const std::vector<std::int64_t>& strides, std::size_t element_bytes, std::span<std::byte> target);

/// Reads the JSON that the writers put next to the arrays.
void read_metadata(const Zip& zip, const std::string& record, Archive& archive);
/// @throws CheckpointError  a text is not UTF-8
std::string metadata_json(const ForeignMetadata& metadata);

}  // namespace lockstep::checkpoints
