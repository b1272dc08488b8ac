// SPDX-License-Identifier: BSD-3-Clause
#include "engine/measures/device_trace.hpp"

#include <torch/csrc/autograd/profiler_kineto.h>

#include <exception>
#include <set>

#include "core/text/message.hpp"

namespace lockstep::engine {

namespace {

namespace profiler = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;
using torch::profiler::impl::ProfilerConfig;
using torch::profiler::impl::ProfilerState;

constexpr double kNanosecondsPerMicrosecond = 1000;

/// Operators on the host are noted by OperatorTrace.
const std::set<ActivityType> kActivities = {ActivityType::CUDA};

Span span_of(const profiler::KinetoEvent& event) {
  const double begin = static_cast<double>(event.startNs()) / kNanosecondsPerMicrosecond;
  return {.name = event.name(),
          .thread = kFirstStream + event.deviceResourceId(),
          .begin = begin,
          .end = begin + static_cast<double>(event.durationNs()) / kNanosecondsPerMicrosecond};
}

}  // namespace

DeviceTrace::DeviceTrace() noexcept {
  try {
    const ProfilerConfig config(ProfilerState::KINETO);
    profiler::prepareProfiler(config, kActivities);
    profiler::enableProfiler(config, kActivities);
    is_open_ = true;
  } catch (const std::exception& error) {
    fault_ = message_of(error);
  }
}

DeviceTrace::~DeviceTrace() { take(); }

std::vector<Span> DeviceTrace::take() noexcept {
  std::vector<Span> spans;
  if (!is_open_) return spans;
  is_open_ = false;
  try {
    const std::unique_ptr<profiler::ProfilerResult> result = profiler::disableProfiler();
    for (const profiler::KinetoEvent& event : result->events()) {
      if (event.deviceType() == c10::DeviceType::CUDA) spans.push_back(span_of(event));
    }
    if (spans.empty())
      fault_ = "CUPTI reported no work of the GPU; the driver may allow profiling to administrators only";
  } catch (const std::exception& error) {
    fault_ = message_of(error);
  }
  return spans;
}

std::unique_ptr<DeviceTrace> trace_device(const c10::Device& device) {
  return device.is_cuda() ? std::make_unique<DeviceTrace>() : nullptr;
}

}  // namespace lockstep::engine
