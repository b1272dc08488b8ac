// SPDX-License-Identifier: BSD-3-Clause
// Events.
#include "fake_gpu/runtime/devices.hpp"
#include "fake_gpu/runtime/events.hpp"
#include "fake_gpu/runtime/exported.hpp"

namespace lockstep::fake_gpu {

namespace {

template <class Call>
cudaError_t with_event_and_stream(cudaEvent_t event, cudaStream_t stream, Call call) {
  return with_event(event, [&](FakeEvent& found, Lock& lock) {
    FakeStream* const in = find_stream(stream);
    return in != nullptr ? call(found, *in, lock) : cudaErrorInvalidResourceHandle;
  });
}

/// Nodes that record or await an event outside of the graph are not modeled.
bool is_external_node(const FakeStream& stream, unsigned flags) { return stream.capture != nullptr && flags != 0; }

cudaError_t record(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  return with_event_and_stream(event, stream, [flags](FakeEvent& found, FakeStream& in, Lock& lock) {
    return is_external_node(in, flags) ? cudaErrorNotSupported : record_event(found, in, lock);
  });
}

cudaError_t create_event(cudaEvent_t* event, unsigned flags) {
  return locked([&](Lock&) {
    *event = handle_of<cudaEvent_t>(make_event(current_device(), flags));
    return device_status();
  });
}

}  // namespace

}  // namespace lockstep::fake_gpu

using namespace lockstep::fake_gpu;

extern "C" {

[[gnu::visibility("default")]] cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return create_event(event, cudaEventDefault);
}

[[gnu::visibility("default")]] cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return create_event(event, flags);
}

[[gnu::visibility("default")]] cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return with_event(event, [](FakeEvent& found, Lock&) {
    destroy(found);
    return cudaSuccess;
  });
}

[[gnu::visibility("default")]] cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return record(event, stream, cudaEventRecordDefault);
}

[[gnu::visibility("default")]] cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream,
                                                                    unsigned flags) {
  return record(event, stream, flags);
}

[[gnu::visibility("default")]] cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return with_event_and_stream(event, stream, [flags](const FakeEvent& found, FakeStream& in, Lock& lock) {
    return is_external_node(in, flags) ? cudaErrorNotSupported : wait_in_stream(in, found, lock);
  });
}

[[gnu::visibility("default")]] cudaError_t cudaEventQuery(cudaEvent_t event) {
  return with_event(event, [](const FakeEvent& found, Lock&) { return query_event(found); });
}

[[gnu::visibility("default")]] cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return with_event(event, [](const FakeEvent& found, Lock& lock) { return wait_on_host(found, lock); });
}

[[gnu::visibility("default")]] cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin,
                                                                cudaEvent_t end) {
  return locked([&](Lock&) {
    const FakeEvent* const first = find_event(begin);
    const FakeEvent* const last = find_event(end);
    if (first == nullptr || last == nullptr) return cudaErrorInvalidResourceHandle;
    return elapsed_ms(*first, *last, milliseconds);
  });
}

// Events of other processes are not modeled.

[[gnu::visibility("default")]] cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t*, cudaEvent_t) {
  return noted(cudaErrorNotSupported);
}

[[gnu::visibility("default")]] cudaError_t cudaIpcOpenEventHandle(cudaEvent_t*, cudaIpcEventHandle_t) {
  return noted(cudaErrorNotSupported);
}

}  // extern "C"
