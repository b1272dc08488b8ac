// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/runtime/kernels_library.hpp"

#include <dlfcn.h>

#include <filesystem>
#include <mutex>
#include <utility>

#include "fake_gpu/runtime/report.hpp"

namespace lockstep::fake_gpu {

namespace {

std::filesystem::path kernels_path() {
  Dl_info info{};
  dladdr(reinterpret_cast<const void*>(&load_kernels), &info);
  return std::filesystem::path(info.dli_fname).replace_filename("libfake_gpu_kernels.so");
}

bool is_libtorch_here() { return dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD) != nullptr; }

void open(const std::filesystem::path& library) {
  if (!std::filesystem::exists(library)) return;
  if (dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) end_process(dlerror());
}

}  // namespace

void load_kernels() {
  static auto& mutex = *new std::recursive_mutex;  // the library itself asks LibTorch for devices
  static bool is_loaded = false;
  const std::lock_guard<std::recursive_mutex> hold(mutex);
  if (is_loaded || !is_libtorch_here()) return;
  is_loaded = true;
  open(kernels_path());
}

}  // namespace lockstep::fake_gpu
