// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/runtime/copies.hpp"

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "fake_gpu/runtime/capture.hpp"
#include "fake_gpu/runtime/memory.hpp"
#include "fake_gpu/runtime/submission.hpp"

namespace lockstep::fake_gpu {

namespace {

/// Who sees the memory on either side of a copy.
struct Route {
  bool from_device = false;
  bool to_device = false;
  bool from_pageable = false;
  bool to_pageable = false;
};

bool is_device_memory(const void* memory) {
  const bool is_known = block_of(memory) != nullptr;
  if (is_known) return block_of(memory)->type == cudaMemoryTypeDevice;
  return address(memory) != memory;  // freed, which is reported where the copy is queued
}

Route route_of(const Copy& copy) {
  Route route{.from_device = is_device_memory(copy.from), .to_device = is_device_memory(copy.target)};
  route.from_pageable = !route.from_device && block_of(copy.from) == nullptr;
  route.to_pageable = !route.to_device && block_of(copy.target) == nullptr;
  return route;
}

bool is_kind(cudaMemcpyKind kind, const Route& route) {
  switch (kind) {
    case cudaMemcpyHostToHost:
      return !route.from_device && !route.to_device;
    case cudaMemcpyHostToDevice:
      return !route.from_device && route.to_device;
    case cudaMemcpyDeviceToHost:
      return route.from_device && !route.to_device;
    case cudaMemcpyDeviceToDevice:
      return route.from_device && route.to_device;
    default:
      return true;
  }
}

const char* name_of(const Route& route) {
  if (route.from_device) return route.to_device ? "copy on the device" : "copy from the device to the host";
  return route.to_device ? "copy from the host to the device" : "copy on the host";
}

std::vector<Range> ranges_of(const Copy& copy) {
  std::vector<Range> ranges;
  for (std::size_t row = 0; row < copy.rows; ++row) {
    ranges.push_back({static_cast<const char*>(copy.from) + row * copy.from_pitch, copy.width, false});
    ranges.push_back({static_cast<char*>(copy.target) + row * copy.to_pitch, copy.width, true});
  }
  return ranges;
}

void move_bytes(const Copy& copy) {
  for (std::size_t row = 0; row < copy.rows; ++row) {
    std::memmove(static_cast<char*>(copy.target) + row * copy.to_pitch,
                 static_cast<const char*>(copy.from) + row * copy.from_pitch, copy.width);
  }
}

Copy with_addresses(const Copy& copy) {
  Copy real = copy;
  real.target = address(copy.target);
  real.from = address(copy.from);
  return real;
}

/// Pageable memory is read at once: the program may change it as soon as the call returns.
Work staged(const Copy& copy) {
  const auto stage = std::make_shared<std::vector<char>>(copy.width * copy.rows);
  Copy to_stage = copy;
  to_stage.target = stage->data();
  to_stage.to_pitch = copy.width;
  move_bytes(to_stage);
  Copy from_stage = copy;
  from_stage.from_pitch = copy.width;
  return [from_stage, stage]() mutable {
    from_stage.from = stage->data();
    move_bytes(from_stage);
  };
}

cudaError_t queue(FakeStream& stream, const Copy& copy, const Route& route, Lock& lock) {
  const bool is_staged = route.from_pageable && route.to_device;
  const Copy real = with_addresses(copy);
  const bool reads_on_host = route.from_device && !route.to_device;
  const bool is_pageable = route.from_pageable || route.to_pageable;
  Submission submission{.name = name_of(route),
                        .ranges = ranges_of(copy),
                        .work = is_staged ? staged(real) : Work([real] { move_bytes(real); }),
                        .cost = {.pageable_copies = is_pageable ? 1 : 0, .host_reads = reads_on_host ? 1 : 0}};
  return submit(stream, submission, lock);
}

}  // namespace

cudaError_t copy(FakeStream& stream, const Copy& what, Lock& lock) {
  const Route route = route_of(what);
  if (!is_kind(what.kind, route)) return cudaErrorInvalidValue;
  if (what.width == 0 || what.rows == 0) return device_status();
  const bool is_pageable = route.from_pageable || route.to_pageable;
  if (stream.capture && is_pageable) return refuse_call(stream);
  const cudaError_t result = queue(stream, what, route, lock);
  if (result != cudaSuccess || stream.capture) return result;
  const bool is_on_host = !route.from_device && !route.to_device;
  if (is_on_host) {
    wait_for(encompassed_by(stream), lock);
  } else if (route.to_pageable) {
    await_unnoticed(encompassed_by(stream), lock);  // CUDA allows that it waits, and does not promise it
  }
  return device_status();
}

cudaError_t copy_and_wait(FakeStream& stream, const Copy& what, Lock& lock) {
  const Route route = route_of(what);
  if (!is_kind(what.kind, route)) return cudaErrorInvalidValue;
  if (const cudaError_t refusal = refuse_use(stream); refusal != cudaSuccess) return refusal;
  const bool is_staged = route.from_pageable && route.to_device;
  if (is_staged) wait_for(encompassed_by(stream), lock);  // waits for what is before the copy, not for the copy
  if (what.width == 0 || what.rows == 0) return device_status();
  const cudaError_t result = queue(stream, what, route, lock);
  if (result != cudaSuccess) return result;
  const bool is_on_device = route.from_device && route.to_device;
  if (!is_staged && !is_on_device) wait_for(encompassed_by(stream), lock);
  return device_status();
}

cudaError_t set_memory(FakeStream& stream, void* memory, int byte, std::size_t bytes, bool is_synchronous, Lock& lock) {
  if (bytes == 0) return device_status();
  const bool is_of_device = is_device_memory(memory);
  if (!is_of_device && block_of(memory) == nullptr) return cudaErrorInvalidValue;
  Submission submission{.name = "memset",
                        .ranges = {{memory, bytes, true}},
                        .work = [real = address(memory), byte, bytes] { std::memset(real, byte, bytes); },
                        .cost = {}};
  const cudaError_t result = submit(stream, submission, lock);
  if (result != cudaSuccess || !is_synchronous || is_of_device) return result;
  wait_for(encompassed_by(stream), lock);
  return device_status();
}

}  // namespace lockstep::fake_gpu
