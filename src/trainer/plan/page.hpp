// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "engine/job_plan.hpp"
#include "engine/workload.hpp"
#include "trainer/plan/measurement.hpp"
#include "trainer/plan/prediction.hpp"

namespace lockstep::trainer {

/// The predicted part of a plan.
struct PredictedRun {
  PredictedStep step = {};
  double error = 0;                    ///< see error_of
  std::int64_t steps = 0;              ///< length of the whole run
  std::optional<double> limit_s = {};  ///< limit by train.time_limit or Slurm
  std::optional<double> save_s = {};   ///< time of a save; none = unknown
  double samples_per_s = 0;

  double low(double seconds) const { return seconds / (1 + error); }
  double high(double seconds) const { return seconds * (1 + error); }
  double run_s() const { return step.seconds() * static_cast<double>(steps); }
  /// Hours of the run until its end or its limit.
  double hours() const { return std::min(run_s(), limit_s.value_or(run_s())) / 3600; }
};

/// Everything that `trainer plan` prints.
struct PlanPage {
  engine::Workload workload = {};
  engine::JobPlan plan = {};
  std::optional<MeasuredHere> here = {};
  std::optional<PredictedRun> predicted = {};
  std::optional<FailurePlan> failures = {};
  FailureSettings failure_settings = {};
  double planning_s = 0;  ///< time for the computed and predicted parts
};

/// The prediction for the job of a plan.
PredictedRun predict_run(const engine::Workload& workload, const engine::JobPlan& plan, const MeasuredHere& here);

/// One page.
std::string text_of(const PlanPage& page);
/// The same numbers, in bytes and seconds.
std::string json_of(const PlanPage& page);

}  // namespace lockstep::trainer
