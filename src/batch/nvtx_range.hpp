// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

namespace lockstep::batch {

/// Shows each later NvtxRange to NVIDIA's profilers. Has no effect in a process without a GPU.
void enable_nvtx_ranges();

/// A named part of the work of this thread in the timelines of NVIDIA's profilers (NVTX): while one lives, what the
/// thread does, and what it queues on a GPU, belongs to it. Free until enable_nvtx_ranges was called.
class NvtxRange {
 public:
  explicit NvtxRange(const char* name);
  /// @param number  follows the name
  NvtxRange(const char* name, std::size_t number);
  ~NvtxRange();
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;

 private:
  bool is_open_ = false;
};

}  // namespace lockstep::batch
