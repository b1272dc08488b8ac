// SPDX-License-Identifier: BSD-3-Clause
#include "curves.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>

namespace lockstep::schedule {

namespace {

KeySpec factor_key(const std::string& name, const std::string& default_value, const std::string& help) {
  return {.name = name, .type = KeyType::real, .default_value = default_value, .help = help, .min = 0, .max = 1};
}

KeySpec gamma_key() {
  return {.name = "gamma",
          .type = KeyType::real,
          .default_value = "0.1",
          .help = "factor of each drop",
          .min = 0,
          .min_is_exclusive = true};
}

/// Steps since the window opened, for curves that move in jumps: none happens at `end` or later.
std::int64_t steps_inside(Window window, std::int64_t step) { return std::min(step, window.end - 1) - window.begin; }

/// How far through the window `step` is, in [0, 1].
double progress(Window window, std::int64_t step) {
  const std::int64_t inside = std::min(step, window.end) - window.begin;
  return static_cast<double>(inside) / static_cast<double>(window.end - window.begin);
}

Schedule make_constant(const Section& rule, Window window) {
  return [factor = rule.real("factor"), window](std::int64_t step) {
    return step < window.begin || step >= window.end ? 1.0 : factor;
  };
}

Schedule make_linear(const Section& rule, Window window) {
  return [start = rule.real("start_factor"), end = rule.real("end_factor"), window](std::int64_t step) {
    if (step < window.begin) return 1.0;
    if (step >= window.end) return end;
    return start + (end - start) * progress(window, step);
  };
}

Schedule make_step(const Section& rule, Window window) {
  if (rule.is_default("size")) throw ConfigError("size: give the steps between drops");
  return [size = rule.integer("size"), gamma = rule.real("gamma"), window](std::int64_t step) {
    if (step < window.begin) return 1.0;
    return std::pow(gamma, static_cast<double>(steps_inside(window, step) / size));
  };
}

Schedule make_multistep(const Section& rule, Window window) {
  const std::vector<std::int64_t> milestones = rule.integers("milestones");
  if (milestones.empty()) throw ConfigError("milestones: give at least one, as in 30/60");
  const bool ascend =
      std::adjacent_find(milestones.begin(), milestones.end(), std::greater_equal<>()) == milestones.end();
  if (!ascend) {
    throw ConfigError("milestones: each must be larger than the one before");
  }
  return [milestones, gamma = rule.real("gamma"), window](std::int64_t step) {
    if (step < window.begin) return 1.0;
    const auto next = std::upper_bound(milestones.begin(), milestones.end(), steps_inside(window, step));
    return std::pow(gamma, static_cast<double>(next - milestones.begin()));
  };
}

Schedule make_cosine(const Section& rule, Window window) {
  return [final_factor = rule.real("final_factor"), window](std::int64_t step) {
    if (step < window.begin) return 1.0;
    if (step >= window.end) return final_factor;
    const double wave = 0.5 * (1.0 + std::cos(std::numbers::pi * progress(window, step)));
    return final_factor + (1.0 - final_factor) * wave;
  };
}

}  // namespace

Curve constant_curve() {
  return {.name = "constant",
          .help = "factor from begin to end, 1 before and after",
          .keys = {factor_key("factor", "1", "what the base lr is multiplied by")},
          .make = make_constant};
}

Curve linear_curve() {
  return {
      .name = "linear",
      .help = "straight from start_factor at begin to end_factor at end: a warm-up is linear,start_factor=0.01,end=100",
      .keys = {factor_key("start_factor", "0.01", "at begin"), factor_key("end_factor", "1", "from end on")},
      .make = make_linear};
}

Curve step_curve() {
  return {
      .name = "step",
      .help = "times gamma every size steps, counted from begin",
      .keys =
          {{.name = "size", .type = KeyType::integer, .default_value = "1", .help = "steps between drops", .min = 1},
           gamma_key()},
      .make = make_step};
}

Curve multistep_curve() {
  return {.name = "multistep",
          .help = "times gamma at each milestone: multistep,milestones=30/60,gamma=0.1",
          .keys = {{.name = "milestones",
                    .type = KeyType::integers,
                    .default_value = "",
                    .help = "steps counted from begin, ascending, separated by /",
                    .min = 1},
                   gamma_key()},
          .make = make_multistep};
}

Curve cosine_curve() {
  return {.name = "cosine",
          .help = "half a cosine wave from 1 at begin to final_factor at end",
          .keys = {factor_key("final_factor", "0", "from end on")},
          .make = make_cosine};
}

}  // namespace lockstep::schedule
