// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime_api.h>

#include "fake_gpu/runtime/events.hpp"
#include "fake_gpu/runtime/graphs.hpp"
#include "fake_gpu/runtime/lock.hpp"
#include "fake_gpu/runtime/streams.hpp"

/// Parts that the exported functions share.
namespace lockstep::fake_gpu {

/// Keeps an error for cudaGetLastError of this thread.
cudaError_t noted(cudaError_t error);

/// @return  the last error of this thread, or that of the device, which stays
cudaError_t last_error(bool is_cleared);

/// The return value of a function that looks at or changes the state of the runtime.
template <class Call>
cudaError_t locked(Call call) {
  Lock lock = hold();
  return noted(call(lock));
}

template <class Call>
cudaError_t with_stream(cudaStream_t handle, Call call) {
  return locked([&](Lock& lock) {
    FakeStream* const stream = find_stream(handle);
    return stream != nullptr ? call(*stream, lock) : cudaErrorInvalidResourceHandle;
  });
}

template <class Call>
cudaError_t with_event(cudaEvent_t handle, Call call) {
  return locked([&](Lock& lock) {
    FakeEvent* const event = find_event(handle);
    return event != nullptr ? call(*event, lock) : cudaErrorInvalidResourceHandle;
  });
}

template <class Handle, class Value>
Handle handle_of(Value& value) {
  return reinterpret_cast<Handle>(&value);
}

}  // namespace lockstep::fake_gpu
