// SPDX-License-Identifier: BSD-3-Clause
#include "engine/measures/early_stop.hpp"

#include <fmt/format.h>

#include <cmath>

namespace lockstep::engine {

bool EarlyStop::is_better(double left, double right) const {
  return options_.better == Better::lower ? left < right : left > right;
}

/// A value that is as good as the best one and min_delta does; without a min_delta it must be better. A NaN never does.
bool EarlyStop::improves(double value) const {
  if (std::isnan(value)) return false;
  if (!best_) return true;
  const double delta = options_.better == Better::lower ? -options_.min_delta : options_.min_delta;
  return is_better(value, *best_) && !is_better(*best_ + delta, value);
}

void EarlyStop::offer(double value, std::int64_t step) {
  last_ = value;
  if (improves(value)) {
    best_ = value;
    best_step_ = step;
    waited_ = 0;
  } else {
    ++waited_;
  }
}

std::string EarlyStop::reason() const {
  if (!last_) return "";
  if (options_.checks_finite && !std::isfinite(*last_)) return fmt::format("is {}", *last_);
  if (options_.threshold && is_better(*last_, *options_.threshold)) {
    return fmt::format("is {:g}, which is better than {:g}", *last_, *options_.threshold);
  }
  if (waited_ < options_.patience) return "";
  const std::string since = fmt::format("in {} evaluation{}", waited_, waited_ == 1 ? "" : "s");
  if (!best_) return "was not a number " + since;
  return fmt::format("has not improved on {:g} of step {} {}", *best_, best_step_, since);
}

void EarlyStop::capture(checkpoints::Archive& archive, const std::string& group) const {
  archive.set(group, "waited", waited_);
  if (last_) archive.set(group, "last", *last_);
  if (!best_) return;
  archive.set(group, "best", *best_);
  archive.set(group, "best_step", best_step_);
}

void EarlyStop::restore(const checkpoints::Archive& archive, const std::string& group) {
  waited_ = archive.integer(group, "waited");
  const auto real = [&](const char* name) {
    return archive.has_attribute(group, name) ? std::optional(archive.real(group, name)) : std::nullopt;
  };
  last_ = real("last");
  best_ = real("best");
  best_step_ = best_ ? archive.integer(group, "best_step") : 0;
}

}  // namespace lockstep::engine
