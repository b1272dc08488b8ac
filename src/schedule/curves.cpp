// SPDX-License-Identifier: BSD-3-Clause
#include "schedule/curves.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>

namespace lockstep::schedule {

KeySpec factor_key(const std::string& name, const std::string& default_value, const std::string& help,
                   bool is_bounded) {
  return keys::real(name, default_value, help, 0, is_bounded ? 1 : keys::kUnlimited);
}

KeySpec choice_key(const std::string& name, const std::vector<std::string>& choices, const std::string& help) {
  return keys::choice(name, choices.front(), help, choices);
}

KeySpec floor_key() { return keys::real("floor", "nan", "Final value, as an alternative to final_factor"); }

std::optional<double> given(const Section& rule, const std::string& key) {
  if (rule.is_default(key)) return {};
  return rule.real(key);
}

Floor::Floor(const Section& rule) : level(given(rule, "floor")), factor(rule.real("final_factor")) {
  if (level && !rule.is_default("final_factor")) throw ConfigError("floor and final_factor cannot be combined");
}

double half_wave(double part) { return 0.5 * (1.0 + std::cos(std::numbers::pi * part)); }

namespace {

KeySpec gamma_key(const std::string& help) { return keys::real_above("gamma", 0, keys::kUnlimited, "0.1", help); }

KeySpec start_key(const std::string& default_value) {
  return factor_key("start_factor", default_value, "Factor at begin");
}

KeySpec final_key(const std::string& help = "Factor from end on") { return factor_key("final_factor", "0", help); }

/// `factor` from begin to end, then 1.
CurveShape make_constant(const Section& rule, Window window) {
  return [factor = rule.real("factor"), window](double position, double value) {
    return position < window.begin || position >= window.end ? value : value * factor;
  };
}

/// Linear curve from start_factor at begin to end_factor at end.
CurveShape make_linear(const Section& rule, Window window) {
  return [start = rule.real("start_factor"), end = rule.real("end_factor"), window](double position, double value) {
    if (position < window.begin) return value;
    if (position >= window.end) return value * end;
    return value * (start + (end - start) * progress(window, position));
  };
}

/// The same along a parabola.
CurveShape make_quadratic(const Section& rule, Window window) {
  return [start = rule.real("start_factor"), end = rule.real("end_factor"), window](double position, double value) {
    if (position < window.begin) return value;
    const double part = progress(window, position);
    return value * (start + (end - start) * part * part);
  };
}

/// gamma^t.
CurveShape make_exponential(const Section& rule, Window window) {
  return [gamma = rule.real("gamma"), window](double position, double value) {
    return position < window.begin ? value : value * std::pow(gamma, inside(window, position));
  };
}

/// gamma^floor(t / size).
CurveShape make_step(const Section& rule, Window window) {
  if (rule.is_default("size")) throw ConfigError("size: set the distance between drops");
  return [size = rule.real("size"), gamma = rule.real("gamma"), window](double position, double value) {
    if (position < window.begin) return value;
    return value * std::pow(gamma, std::max(0.0, std::floor(inside_jumps(window, position) / size)));
  };
}

/// The positions where a multistep curve jumps: as given, or so that all values hold equally long.
std::vector<double> milestones_of(const Section& rule, const Window& window, std::size_t values) {
  std::vector<double> milestones = rule.reals("milestones");
  if (milestones.empty()) {
    if (values == 0) throw ConfigError("milestones: set at least one, as in 30,60");
    for (std::size_t i = 1; i < values; ++i) {
      milestones.push_back(window.width() * static_cast<double>(i) / static_cast<double>(values));
    }
  }
  if (!std::is_sorted(milestones.begin(), milestones.end())) {
    throw ConfigError("milestones: each must be at least as large as the one before");
  }
  if (values == 0) return milestones;
  if (milestones.size() + 1 != values) throw ConfigError("values: set one more than there are milestones");
  const bool is_strict =
      std::adjacent_find(milestones.begin(), milestones.end(), std::greater_equal<>()) == milestones.end();
  if (!is_strict) throw ConfigError("milestones: between values each must be larger than the one before");
  if (!milestones.empty() && (milestones.front() <= 0 || milestones.back() >= window.width())) {
    throw ConfigError("milestones: between values each must be inside the window");
  }
  return milestones;
}

/// gamma^(number of milestones reached), or the next of `values`.
CurveShape make_multistep(const Section& rule, Window window) {
  const std::vector<double> values = rule.reals("values");
  const std::vector<double> milestones = milestones_of(rule, window, values.size());
  if (!values.empty() && !rule.is_default("gamma")) throw ConfigError("values and gamma cannot be combined");
  return [milestones, values, gamma = rule.real("gamma"), window](double position, double value) {
    if (position < window.begin) return value;
    const double here = inside_jumps(window, position);
    const auto jumps = std::upper_bound(milestones.begin(), milestones.end(), here) - milestones.begin();
    if (!values.empty()) return value * values[static_cast<std::size_t>(jumps)];
    return value * std::pow(gamma, static_cast<double>(jumps));
  };
}

/// Cosine curve from start_factor at begin to its floor at begin + length.
CurveShape make_cosine(const Section& rule, Window window) {
  const double length = rule.is_default("length") ? window.width() : rule.real("length");
  return [start = rule.real("start_factor"), floor = Floor(rule), length, window](double position, double value) {
    if (position < window.begin) return value;
    const double low = floor.under(value);
    return low + (value * start - low) * half_wave(inside(window, position) / length);
  };
}

/// (1 - t / width)^power.
CurveShape make_polynomial(const Section& rule, Window window) {
  return [power = rule.real("power"), floor = Floor(rule), window](double position, double value) {
    if (position < window.begin) return value;
    const double low = floor.under(value);
    return low + (value - low) * std::pow(1.0 - progress(window, position), power);
  };
}

/// Straight up to 1 at `warmup`, then sqrt(warmup / t).
CurveShape make_inverse_sqrt(const Section& rule, Window window) {
  if (rule.is_default("warmup")) throw ConfigError("warmup: set the position of the peak");
  const bool rises = rule.boolean("rise");
  return [warmup = rule.real("warmup"), offset = rule.real("offset"), rises, window](double position, double value) {
    if (position < window.begin) return value;
    const double here = inside(window, position) + offset;
    if (rises && here < warmup) return value * here / warmup;
    return value * std::sqrt(here > 0 ? warmup / here : warmup);
  };
}

}  // namespace

const std::vector<Curve>& simple_curves() {
  static const std::vector<Curve> rows = {
      {.name = "constant",
       .help = "A constant factor from begin to end, and 1 elsewhere",
       .keys = {factor_key("factor", "1", "Factor on the value")},
       .make = make_constant},
      {.name = "linear",
       .help = "Linear change from start_factor at begin to end_factor at end; a warm-up is "
               "linear,start_factor=0.01,end=100",
       .keys = {start_key("0.01"), factor_key("end_factor", "1", "Factor from end on")},
       .make = make_linear},
      {.name = "quadratic",
       .help = "Quadratic warm-up from start_factor to end_factor",
       .keys = {start_key("0"), factor_key("end_factor", "1", "Factor from end on")},
       .make = make_quadratic},
      {.name = "exponential",
       .help = "Multiplication by gamma in every unit of by",
       .keys = {gamma_key("Factor in each unit")},
       .make = make_exponential},
      {.name = "step",
       .help = "Multiplication by gamma every size units, counted from begin",
       .keys = {keys::real_above("size", 0, keys::kUnlimited, "1", "Units between drops"),
                gamma_key("Factor of each drop")},
       .make = make_step},
      {.name = "multistep",
       .help = "Multiplication by gamma at each milestone: multistep,milestones=30,60,gamma=0.1",
       .keys = {keys::reals("milestones", "",
                            "Positions counted from begin, in ascending order. A position that is given twice counts "
                            "twice",
                            0),
                gamma_key("Factor of each drop"),
                keys::reals("values", "",
                            "Factors before and after each milestone, as an alternative to gamma. Without "
                            "milestones, all have the same length",
                            0)},
       .make = make_multistep},
      {.name = "cosine",
       .help = "Cosine decay from 1 at begin to final_factor at end",
       .keys = {start_key("1"), final_key(), floor_key(),
                keys::real_above(
                    "length", 0, keys::kUnlimited, "nan",
                    "Length of half a period, if it differs from the window; the wave continues until end")},
       .make = make_cosine},
      {.name = "polynomial",
       .help = "Polynomial decay: (1 - progress)^power, scaled to end at final_factor",
       .keys = {keys::real("power", "1", "Exponent", 0), final_key(), floor_key()},
       .make = make_polynomial},
      {.name = "inverse_sqrt",
       .help = "Linear warm-up to 1, then sqrt(warmup / position)",
       .keys = {keys::real_above("warmup", 0, keys::kUnlimited, "1", "Position of the peak, counted from begin"),
                keys::real("offset", "0", "Offset of the position; 1 = the first step has position 1", 0),
                keys::boolean("rise", "true",
                              "If false, the inverse square root is also used before warmup, for use after another "
                              "warm-up; position 0 then counts as 1")},
       .make = make_inverse_sqrt}};
  return rows;
}

}  // namespace lockstep::schedule
