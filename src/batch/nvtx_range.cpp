// SPDX-License-Identifier: BSD-3-Clause
#include "batch/nvtx_range.hpp"

#include <torch/csrc/profiler/stubs/base.h>

#include <atomic>
#include <string>

namespace lockstep::batch {

namespace {

std::atomic<bool> has_ranges = false;

/// LibTorch's CUDA half brings NVTX with it.
bool open_range(const char* name) {
  torch::profiler::impl::cudaStubs()->rangePush(name);
  return true;
}

}  // namespace

void enable_nvtx_ranges() { has_ranges = torch::profiler::impl::cudaStubs()->enabled(); }

NvtxRange::NvtxRange(const char* name) : is_open_(has_ranges && open_range(name)) {}

NvtxRange::NvtxRange(const char* name, std::size_t number)
    : is_open_(has_ranges && open_range((name + (" " + std::to_string(number))).c_str())) {}

NvtxRange::~NvtxRange() {
  if (is_open_) torch::profiler::impl::cudaStubs()->rangePop();
}

}  // namespace lockstep::batch
