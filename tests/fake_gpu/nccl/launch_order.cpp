// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/nccl/launch_order.hpp"

#include "fake_gpu/nccl/errors.hpp"

namespace lockstep::fake_gpu::nccl {

namespace {

void record(cudaEvent_t* event, cudaStream_t stream) {
  if (*event == nullptr) check(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  check(cudaEventRecord(*event, stream), "cudaEventRecord");
}

void wait(cudaStream_t stream, cudaEvent_t event) {
  check(cudaStreamWaitEvent(stream, event, 0), "cudaStreamWaitEvent");
}

}  // namespace

LaunchOrder::~LaunchOrder() {
  for (const cudaEvent_t event : {eager_.event, captured_.event}) {
    if (event != nullptr) cudaEventDestroy(event);
  }
}

void LaunchOrder::begin(const std::vector<cudaStream_t>& streams, unsigned long long capture) {
  Last& before = last(capture);
  if (before.event != nullptr && before.capture == capture) wait(streams.front(), before.event);
  before.capture = capture;
  for (std::size_t i = 1; i < streams.size(); ++i) {
    record(&before.event, streams[i]);
    wait(streams.front(), before.event);
  }
}

void LaunchOrder::end(const std::vector<cudaStream_t>& streams, unsigned long long capture) {
  Last& now = last(capture);
  record(&now.event, streams.front());
  for (std::size_t i = 1; i < streams.size(); ++i) wait(streams[i], now.event);
}

bool LaunchOrder::is_complete() const {
  if (eager_.event == nullptr) return true;
  const cudaError_t state = cudaEventQuery(eager_.event);
  if (state != cudaErrorNotReady) check(state, "cudaEventQuery");
  if (state == cudaErrorNotReady) cudaGetLastError();
  return state == cudaSuccess;
}

}  // namespace lockstep::fake_gpu::nccl
