// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "checkpoints/foreign/source.hpp"

/// HDF5 files of other programs. The library is not safe against a hostile file, so a child process parses it and
/// reports the result.
namespace lockstep::checkpoints {

/// Whether HDF5's signature stands at byte 0, 512, 1024, 2048, ...
bool is_hdf5(const ByteSource& source);

Archive read_foreign_hdf5(const DiskSource& source);

/// The messages of the child, with the data that follow them.
enum class Hdf5Event : std::uint64_t {
  end,
  group,    ///< path
  array,    ///< path, dtype, number of dimensions, dimensions, bytes, the bytes
  alias,    ///< path, path of the array it is
  integer,  ///< path of the group or array, name, value
  real,     ///< the same
  text,     ///< the same
  failure,  ///< object, message, CheckpointFault
};

/// Writes to the parent; in the child.
class ChildOutput {
 public:
  explicit ChildOutput(int pipe) : pipe_(pipe) {}
  void write(std::span<const std::byte> bytes);
  void write_number(std::uint64_t number) { write(std::as_bytes(std::span(&number, 1))); }
  void write_text(const std::string& text);

 private:
  int pipe_;
};

/// Walks through a file; in the child. A CheckpointError is sent to the parent, not thrown.
void walk_hdf5(const ByteSource& source, std::span<const std::byte> content, ChildOutput& output);

}  // namespace lockstep::checkpoints
