// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/engine/run_view.hpp>
#include <lockstep/optim/optimizer.hpp>

#include <utility>

namespace lockstep::engine {

ScheduleSettings ScheduleSettings::from(const Section& sched) {
  return {.rules = sched.texts("rule"), .origin = sched.origin("rule")};
}

void ScheduleControl::plan(const schedule::RunLength& run) {
  const schedule::Numbers learned = schedule_.state();
  schedule::RunLength length = run;
  length.total_steps -= begin_;
  follow(rules(), length);
  if (!learned.empty()) schedule_.load_state(learned);
}

void ScheduleControl::follow(std::vector<std::string> rules, const schedule::RunLength& length) {
  schedule_ = schedule::parse(rules, length, settings_.origin, *curves_);
  settings_.rules = std::move(rules);
  length_ = length;
}

double ScheduleControl::factor(std::int64_t step, const optim::ParamGroup& group, const std::string& part) const {
  const double base = group.base_lr == 0 ? 1.0 : group.base_lr;
  return schedule_.value(step - begin_, {.option = "lr", .group = group.name, .part = part, .base = base}) / base;
}

}  // namespace lockstep::engine
