// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/core/section.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace lockstep::optim {

struct AverageOptions {
  double decay = 0.9998;                ///< factor on the average when new values are added; in (0, 1)
  double gamma = 100;                   ///< annealing: updates until new values have a small factor; > 0
  std::int64_t interval = 1;            ///< steps between updates of the average; >= 1
  std::vector<std::string> names = {};  ///< patterns of the parameters and buffers that are averaged; empty = all
  bool averages_buffers = false;        ///< floating-point buffers are averaged; false = they are those of the model

  /// Reads section `ema`.
  /// @throws ConfigError  a decay outside of (0, 1)
  static AverageOptions from(const Section& ema);
};

/// A row of the table of averages of weights: average += weight * (values - average). A program can append rows to
/// engine::Registry::averages.
struct AverageRule {
  std::string name;
  std::string help;
  /// Returns the weight of new values, in [0, 1]; the same on every rank.
  /// @param update  number of the update, a multiple of the interval, from 1; update 0 copies the values
  std::function<double(const AverageOptions& options, std::int64_t update)> weight;
};

/// The built-in averages: ema, swa, annealing.
const std::vector<AverageRule>& builtin_averages();
/// The row that ema.kind names; null = no average.
const AverageRule* find_average(const Section& ema, const std::vector<AverageRule>& rules = builtin_averages());
/// The keys of section `ema`, for a choice of these rules.
KeySpecs ema_keys(const std::vector<AverageRule>& rules = builtin_averages());

}  // namespace lockstep::optim
