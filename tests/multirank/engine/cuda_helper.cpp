// SPDX-License-Identifier: BSD-3-Clause
// Does what a run does with LibTorch before it chooses its device, opens lockstep_gpu.so, and says whether LibTorch
// knows of CUDA then. It does not where anything has asked for CUDA before.
#include <ATen/detail/CUDAHooksInterface.h>
#include <dlfcn.h>

#include <cstdio>

#include "small_run.hpp"

int main() {
  const lockstep::Sections sections = lockstep::engine::sections_of({});
  const auto splits = lockstep::data::open(sections.at("data"));
  if (splits.train->get(lockstep::batch::draws_in_order(0, 2)).input().size(0) != 2) return 1;
  if (dlopen("lockstep_gpu.so", RTLD_NOW | RTLD_LOCAL) == nullptr) {
    std::printf("%s\n", dlerror());
    return 1;
  }
  // Its CUDA half says yes without a driver, what stands in for it says no.
  std::printf(at::detail::getCUDAHooks().hasCUDART() ? "LibTorch knows CUDA\n" : "LibTorch does not know CUDA\n");
}
