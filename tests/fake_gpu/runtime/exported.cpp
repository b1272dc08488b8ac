// SPDX-License-Identifier: BSD-3-Clause
// What fake_gpu.hpp declares, and the errors of the runtime.
#include "fake_gpu/runtime/exported.hpp"

#include <utility>

#include "fake_gpu/runtime/capture.hpp"
#include "fake_gpu/runtime/counters.hpp"
#include "fake_gpu/runtime/devices.hpp"
#include "fake_gpu/runtime/errors.hpp"
#include "fake_gpu/runtime/host.hpp"
#include "fake_gpu/runtime/submission.hpp"

namespace lockstep::fake_gpu {

namespace {

thread_local cudaError_t last_of_thread = cudaSuccess;

/// @param needs_device  whether the stream must be one of the current device, as for a kernel
cudaError_t enqueue(cudaStream_t handle, Submission submission, bool needs_device) {
  return with_stream(handle, [&](FakeStream& stream, Lock& lock) {
    if (needs_device && stream.device != current_device()) return cudaErrorInvalidResourceHandle;
    return submit(stream, submission, lock);
  });
}

}  // namespace

cudaError_t noted(cudaError_t error) {
  if (error != cudaSuccess) last_of_thread = error;
  return error;
}

cudaError_t last_error(bool is_cleared) {
  const Lock lock = hold();
  const cudaError_t error = is_cleared ? std::exchange(last_of_thread, cudaSuccess) : last_of_thread;
  return device_status() != cudaSuccess ? device_status() : error;
}

cudaError_t enqueue(cudaStream_t stream, const char* name, std::vector<Range> ranges, Work work) {
  return enqueue(stream, {.name = name, .ranges = std::move(ranges), .work = std::move(work), .cost = {.launches = 1}},
                 true);
}

cudaError_t enqueue_collective(cudaStream_t stream, const char* name, std::vector<Range> ranges, Work work) {
  return enqueue(
      stream, {.name = name, .ranges = std::move(ranges), .work = std::move(work), .cost = {.nccl_calls = 1}}, false);
}

void note_host_access(const char* name, const Range& range) {
  const Lock lock = hold();
  access_from_host(name, range);
}

bool is_capturing(cudaStream_t handle) {
  const Lock lock = hold();
  const FakeStream* const stream = find_stream(handle);
  return stream != nullptr && stream->capture != nullptr;
}

Counters counters() {
  const Lock lock = hold();
  return counted();
}

void begin_step() {
  const Lock lock = hold();
  begin_step_of_host();
}

void count_nccl_call() {
  const Lock lock = hold();
  count({.nccl_calls = 1});
}

}  // namespace lockstep::fake_gpu

using namespace lockstep::fake_gpu;

extern "C" {

[[gnu::visibility("default")]] cudaError_t cudaGetLastError() { return last_error(/*is_cleared=*/true); }

[[gnu::visibility("default")]] cudaError_t cudaPeekAtLastError() { return last_error(/*is_cleared=*/false); }

[[gnu::visibility("default")]] const char* cudaGetErrorName(cudaError_t error) {
  const char* const name = name_of(error);
  return name != nullptr ? name : "unrecognized error code";
}

[[gnu::visibility("default")]] const char* cudaGetErrorString(cudaError_t error) {
  const char* const sentence = sentence_of(error);
  return sentence != nullptr ? sentence : "unrecognized error code";
}

}  // extern "C"
