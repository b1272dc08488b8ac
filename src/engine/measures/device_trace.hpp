// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/measures/trace.hpp"

namespace c10 {
struct Device;
}

namespace lockstep::engine {

/// While one lives, the work of this process on its GPU is noted: kernels, copies and memsets of all streams, by
/// LibTorch's Kineto with NVIDIA's CUPTI. One at a time; begun and ended by the same thread.
class DeviceTrace {
 public:
  DeviceTrace() noexcept;
  ~DeviceTrace();
  DeviceTrace(const DeviceTrace&) = delete;
  DeviceTrace& operator=(const DeviceTrace&) = delete;

  /// Ends the recording, for which the GPU finishes its work. Once.
  /// @return  spans of threads from kFirstStream on, one for each stream
  std::vector<Span> take() noexcept;
  /// Why `take` has returned nothing; empty = there is something.
  const std::string& fault() const noexcept { return fault_; }

 private:
  bool is_open_ = false;
  std::string fault_;
};

/// @return  null for the CPU
std::unique_ptr<DeviceTrace> trace_device(const c10::Device& device);

}  // namespace lockstep::engine
