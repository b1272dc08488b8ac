// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <algorithm>
#include <cmath>

#include "schedule/curves.hpp"

namespace lockstep::schedule {

namespace {

using Blend = double (*)(double part);  // 1 to 0 while part goes from 0 to 1

double straight(double part) { return 1.0 - part; }
double root(double part) { return 1.0 - std::sqrt(part); }

KeySpec length_key(const std::string& name, const std::string& help) { return keys::real(name, "0", help, 0); }

/// Warm-up, stable, decay.
CurveShape make_wsd(const Section& rule, Window window) {
  const double warmup = rule.real("warmup");
  const double decay = rule.real("decay");
  if (warmup + decay > window.width() + kSlack)
    throw ConfigError("warmup and decay: their sum must not exceed end - begin");
  const std::string& shape = rule.text("shape");
  const Blend blend = shape == "linear" ? straight : shape == "cosine" ? half_wave : root;
  return [=, start = rule.real("start_factor"), floor = Floor(rule)](double position, double value) {
    if (position < window.begin) return value;
    const double here = inside(window, position);
    if (here < warmup) return value * (start + (1.0 - start) * here / warmup);
    const double into_decay = here - (window.width() - decay);
    if (into_decay <= 0) return value;
    const double low = floor.under(value);
    return low + (value - low) * blend(std::min(1.0, into_decay / decay));
  };
}

/// A turning point of one cycle, or its beginning.
struct Turn {
  double part;    // position, as a part of the window
  double factor;  // multiplies the peak
};

double on_cycle(const std::vector<Turn>& turns, double part, Blend blend) {
  std::size_t next = 1;
  while (next + 1 < turns.size() && part > turns[next].part) ++next;
  const Turn& from = turns[next - 1];
  const Turn& next_turn = turns[next];
  if (next_turn.part <= from.part) return next_turn.factor;
  return next_turn.factor + (from.factor - next_turn.factor) * blend((part - from.part) / (next_turn.part - from.part));
}

/// Up and down once.
CurveShape make_one_cycle(const Section& rule, Window window) {
  const double rise = rule.real("rise");
  const bool three_phases = rule.boolean("three_phases");
  if (rise >= 1) throw ConfigError("rise: no time remains for the fall");
  if (three_phases && rise > 0.5) throw ConfigError("rise: the maximum with three_phases is 0.5");
  const double start = rule.real("start_factor");
  std::vector<Turn> turns = {{0, start}, {rise, 1}};
  if (three_phases) turns.push_back({2 * rise, start});
  turns.push_back({1, rule.real("final_factor")});
  const Blend blend = rule.text("shape") == "linear" ? straight : half_wave;
  return [=](double position, double value) {
    return position < window.begin ? value : value * on_cycle(turns, progress(window, position), blend);
  };
}

/// Up and down forever.
CurveShape make_cyclic(const Section& rule, Window window) {
  if (rule.is_default("up")) throw ConfigError("up: set the length of the rise");
  const double up = rule.real("up");
  if (up < kSlack) throw ConfigError("up: the length must be positive");
  const double cycle = up + (rule.is_default("down") ? up : rule.real("down"));
  const std::string& shape = rule.text("shape");
  return [=, gamma = rule.real("gamma"), start = rule.real("start_factor")](double position, double value) {
    if (position < window.begin) return value;
    const double here = inside(window, position);
    const double cycles = std::floor(here / cycle);
    const double into = here - cycles * cycle;
    double height = into <= up ? into / up : (cycle - into) / (cycle - up);
    if (shape == "halved") height *= std::pow(2.0, -cycles);
    if (shape == "exponential") height *= std::pow(gamma, here);
    return value * (start + (1.0 - start) * height);
  };
}

/// One wave after another.
struct Waves {
  std::vector<double> periods;  // periods of half waves
  std::vector<double> weights;
  double grow;    // factor of each period after the last given one; 0 = none follows
  double shrink;  // the same for weights
  bool is_full;   // a wave but the first begins at the bottom, rises in one period and falls in the next
  bool is_adaptive;
};

struct Wave {
  double begin;
  double period;
  double weight;
};

/// Passes over most of the waves after the given ones that end before `here`, where there are many: each is `grow`
/// times as long as the one before, so where the n-th begins is the sum of a geometric series.
void pass_over(const Waves& waves, double here, Wave& wave) {
  constexpr double kFew = 1000;
  const double length = wave.period * (waves.is_full ? 2 : 1);
  const double ahead = (here - wave.begin) / length;
  const double log = std::log(waves.grow);
  const double count = std::floor(log == 0 ? ahead : std::log1p(ahead * (waves.grow - 1)) / log) - 1;
  if (!(count > kFew)) return;
  wave.begin += length * (log == 0 ? count : std::expm1(count * log) / (waves.grow - 1));
  wave.period *= std::pow(waves.grow, count);
  wave.weight *= std::pow(waves.shrink, count);
}

/// The wave at `here`, which counts from the beginning of the first.
Wave wave_at(const Waves& waves, double here) {
  Wave wave{.begin = 0, .period = waves.periods.front(), .weight = waves.weights.front()};
  for (std::size_t next = 1;; ++next) {
    const bool is_given = next < waves.periods.size();
    const double length = wave.period * (waves.is_full && next > 1 ? 2 : 1);
    if ((!is_given && waves.grow == 0) || here + kSlack < wave.begin + length) return wave;
    wave.begin += length;
    wave.period = is_given ? waves.periods[next] : wave.period * waves.grow;
    wave.weight = is_given ? waves.weights[next] : wave.weight * waves.shrink;
    if (!is_given) pass_over(waves, here, wave);
  }
}

/// Two would begin at nearly the same number with more of them.
constexpr double kMaxWaves = 1e12;

Waves waves_of(const Section& rule, const Window& window) {
  Waves waves{.periods = rule.reals("periods"),
              .weights = rule.reals("weights"),
              .grow = rule.real("grow"),
              .shrink = rule.real("shrink"),
              .is_full = rule.text("wave") == "full",
              .is_adaptive = rule.boolean("adaptive")};
  if (waves.periods.empty()) throw ConfigError("periods: set at least one");
  if (waves.weights.empty()) waves.weights.assign(waves.periods.size(), 1.0);
  if (waves.weights.size() != waves.periods.size()) throw ConfigError("weights: set one per period");
  if (waves.grow != 0 && waves.grow < 1) throw ConfigError("grow: must be 0 or at least 1");
  if (waves.grow != 0 && window.width() / waves.periods.back() > kMaxWaves) {
    throw ConfigError("periods: the last one is too short, there would be too many waves");
  }
  return waves;
}

KeySpec periods_key() {
  KeySpec key = keys::reals("periods", "", "Length of each period", 0);
  key.min_is_exclusive = true;
  return key;
}

/// Cosine waves one after another.
CurveShape make_cosine_restart(const Section& rule, Window window) {
  return [waves = waves_of(rule, window), floor = Floor(rule), window](double position, double value) {
    if (position < window.begin) return value;
    const double here = inside(window, position);
    const Wave wave = wave_at(waves, here);
    const double low = floor.under(value);
    double top = value * wave.weight;
    if (waves.is_adaptive) top = low + (value - low) * half_wave(wave.begin / window.width());
    const double part = (here - wave.begin) / wave.period + (waves.is_full && wave.begin > 0 ? 1 : 0);
    return low + (top - low) * half_wave(waves.is_full ? part : std::min(1.0, part));
  };
}

}  // namespace

const std::vector<Curve>& cycle_curves() {
  static const std::vector<Curve> rows = {
      {.name = "wsd",
       .help = "Warm-up, stable, decay (WSD): rises during warmup, and falls during the last decay units of the window",
       .keys = {length_key("warmup", "Length of the linear warm-up"), length_key("decay", "Length of the fall"),
                factor_key("start_factor", "0", "Factor at begin"),
                factor_key("final_factor", "0", "Factor from end on"), floor_key(),
                choice_key("shape", {"linear", "cosine", "sqrt"}, "Shape of the decay")},
       .make = make_wsd},
      {.name = "one_cycle",
       .help = "One cycle: rises to 1 and falls once; base= sets the peak, if it differs from the configured value",
       .keys = {factor_key("rise", "0.3", "Fraction of the window in which it rises"),
                factor_key("start_factor", "0.04", "Initial value relative to the peak", false),
                factor_key("final_factor", "4e-6", "Final value relative to the peak", false),
                choice_key("shape", {"cosine", "linear"}, "Shape of rise and fall"),
                keys::boolean("three_phases", "false",
                              "Fall to start_factor as fast as it rose, and then to final_factor")},
       .make = make_one_cycle},
      {.name = "cyclic",
       .help = "Cycles that rise from start_factor to 1 and fall again",
       .keys = {length_key("up", "Length of the rise"),
                length_key("down", "Length of the fall. If not given, the value of up is used"),
                factor_key("start_factor", "0.1", "Factor at the start of each cycle", false),
                choice_key(
                    "shape", {"even", "halved", "exponential"},
                    "Height of the peaks: constant, halved after each cycle, or multiplied by gamma in every unit"),
                factor_key("gamma", "1", "Factor of shape=exponential", false)},
       .make = make_cyclic},
      {.name = "cosine_restart",
       .help = "Cosine decay with warm restarts: cosine_restart,periods=10,20,weights=1,0.5,final_factor=0",
       .keys = {periods_key(),
                keys::reals("weights", "", "Factor at the start of each period. If not given, 1 is used", 0),
                factor_key("grow", "0",
                           "Further periods follow, each this many times as long as the previous one. 0 = none", false),
                factor_key("shrink", "1", "Factor on the start value of each further period", false),
                factor_key("final_factor", "0", "Factor at the end of each period"), floor_key(),
                choice_key("wave", {"half", "full"},
                           "half = each period falls; full = each period falls and rises again"),
                keys::boolean("adaptive", "false",
                              "Each period starts at the value of a single decay over the whole window")},
       .make = make_cosine_restart}};
  return rows;
}

}  // namespace lockstep::schedule
