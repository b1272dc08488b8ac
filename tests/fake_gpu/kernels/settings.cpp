// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/kernels/settings.hpp"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <unistd.h>

#include "fake_gpu/fake_gpu.hpp"

namespace lockstep::fake_gpu {

namespace {

bool read_adds_16bit_in_float() {
  const char* const value = std::getenv("FAKE_GPU_16BIT_PRODUCTS");
  const std::string text = value == nullptr ? "float" : value;
  if (text == "float" || text == "cpu") return text == "float";
  std::fprintf(stderr, "fake GPU: FAKE_GPU_16BIT_PRODUCTS=%s is unknown; use float or cpu\n", text.c_str());
  _exit(kRaceExit);
}

}  // namespace

const KernelSettings& kernel_settings() {
  static const KernelSettings settings{.adds_16bit_in_float = read_adds_16bit_in_float()};
  return settings;
}

}  // namespace lockstep::fake_gpu
