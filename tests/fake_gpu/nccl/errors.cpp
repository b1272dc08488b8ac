// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/nccl/errors.hpp"

#include <cstdio>
#include <mutex>
#include <unistd.h>

#include "fake_gpu/fake_gpu.hpp"

namespace lockstep::fake_gpu::nccl {

namespace {

std::mutex error_mutex;
std::string error_text;  // one for the process, as NCCL has it: the thread that polls may find the error

}  // namespace

void check(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return;
  cudaGetLastError();
  throw Refusal(ncclUnhandledCudaError, std::string(call) + ": " + cudaGetErrorString(code));
}

void set_last_error(const std::string& sentence) {
  const std::lock_guard<std::mutex> hold(error_mutex);
  error_text = sentence;
}

const char* last_error() {
  thread_local std::string copy;
  const std::lock_guard<std::mutex> hold(error_mutex);
  copy = error_text;
  return copy.c_str();
}

void break_rule(const std::string& sentence, const CallSite& site) {
  std::fflush(nullptr);
  std::fprintf(stderr, "fake GPU: %s\n", sentence.c_str());
  std::fflush(stderr);
  site.print(STDERR_FILENO);
  _exit(kRaceExit);
}

}  // namespace lockstep::fake_gpu::nccl
