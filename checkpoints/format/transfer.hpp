// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

/// How arrays travel between memory and state files.
namespace lockstep::checkpoints {

/// "1.10.8": of the HDF5 library at hand.
std::string hdf5_version();

/// Threads that reading or writing a large file gains from: as many as this process may use cores, at most 4.
int io_threads();

/// One of the files that a checkpoint is written in.
struct FilePart {
  std::uint32_t number = 0;
  std::uint32_t count = 1;
};

/// Memory that an array of a checkpoint is read straight into, where it is checked.
struct RestoreTarget {
  std::span<std::byte> memory = {};  ///< skipped unless it has the array's size
  bool is_read_here = true;          ///< false = another process, which shares the memory, reads and checks this array
  bool is_left_out = false;          ///< the array is neither read nor a part of the archive
};
using RestoreTargets = std::map<std::string, RestoreTarget>;  ///< restore targets by path

}  // namespace lockstep::checkpoints
