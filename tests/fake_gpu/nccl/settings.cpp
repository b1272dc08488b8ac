// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/nccl/settings.hpp"

#include <array>
#include <cstdlib>
#include <unistd.h>

namespace lockstep::fake_gpu::nccl {

namespace {

constexpr int kDefaultPolls = 2;
constexpr std::size_t kMaxHostName = 256;

}  // namespace

int polls_in_progress() {
  const char* const value = std::getenv("FAKE_GPU_NCCL_POLLS");
  return value != nullptr ? std::atoi(value) : kDefaultPolls;
}

std::string host_id() {
  if (const char* const id = std::getenv("NCCL_HOSTID"); id != nullptr) return id;
  std::array<char, kMaxHostName> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace lockstep::fake_gpu::nccl
