// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/runtime/faults.hpp"

#include <mutex>
#include <optional>
#include <stdexcept>
#include <utility>

#include "fake_gpu/runtime/settings.hpp"

namespace lockstep::fake_gpu {

namespace {

struct Faults {
  std::mutex mutex;  // threads of NCCL ask, too
  FaultPlan plan = settings().fault;
  std::optional<std::size_t> failed_bytes;  ///< if the last allocation failed by plan
};

Faults& faults() {
  static Faults& only = *new Faults;
  return only;
}

}  // namespace

void plan_fault(const FaultPlan& plan) {
  const std::lock_guard<std::mutex> hold(faults().mutex);
  faults().plan = plan;
  faults().failed_bytes.reset();
}

bool is_due(PlannedFault fault, double* seconds) {
  const std::lock_guard<std::mutex> hold(faults().mutex);
  FaultPlan& plan = faults().plan;
  if (plan.fault != fault || plan.occurrence <= 0 || --plan.occurrence > 0) return false;
  if (seconds != nullptr) *seconds = plan.seconds;
  return true;
}

bool must_fail(std::size_t bytes) {
  const bool is_first = is_due(PlannedFault::out_of_memory);
  const std::lock_guard<std::mutex> hold(faults().mutex);
  const auto failed_bytes = std::exchange(faults().failed_bytes, std::nullopt);
  if (is_first) faults().failed_bytes = bytes;
  return is_first || failed_bytes == bytes;
}

void fail_by_plan() { throw std::runtime_error("the fault that was asked for"); }

}  // namespace lockstep::fake_gpu
