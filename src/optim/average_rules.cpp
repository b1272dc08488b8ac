// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <algorithm>

#include "core/table.hpp"
#include "optim/model_average.hpp"

namespace lockstep::optim {

namespace {

double weight_of_ema(const AverageOptions& options, std::int64_t) { return 1 - options.decay; }

/// Source: Izmailov et al., Averaging Weights Leads to Wider Optima and Better Generalization: all count the same.
double weight_of_swa(const AverageOptions& options, std::int64_t update) {
  return 1 / static_cast<double>(update / options.interval + 1);
}

double weight_of_annealing(const AverageOptions& options, std::int64_t update) {
  return std::max(1 - options.decay, options.gamma / (options.gamma + static_cast<double>(update)));
}

KeySpec count_key(const char* name, const char* value, const char* help, double min) {
  return keys::integer(name, value, help, min, 1e12);
}

}  // namespace

AverageOptions AverageOptions::from(const Section& ema) {
  const AverageOptions options{.decay = ema.real("decay"),
                               .gamma = ema.real("gamma"),
                               .interval = ema.integer("interval"),
                               .averages_buffers = ema.text("buffers") == "average"};
  if (options.decay >= 1) {
    throw ConfigError(ema.cite("decay") + ": with 1 the average would stay what it is first; take a number below 1");
  }
  return options;
}

const std::vector<AverageRule>& average_rules() {
  static const std::vector<AverageRule> rows = {
      {"ema", "exponential: the latest weights count most, by ema.decay", weight_of_ema},
      {"swa", "stochastic weight averaging: all weights count the same", weight_of_swa},
      {"annealing", "at first new weights count more than in ema: ema.gamma / (ema.gamma + updates)",
       weight_of_annealing},
  };
  return rows;
}

const AverageRule* find_average(const Section& ema) {
  return ema.text("kind") == "none" ? nullptr : &find_row(average_rules(), ema.text("kind"), ema.cite("kind"));
}

KeySpecs ema_keys() {
  std::vector<std::string> kinds = {"none"};
  for (const AverageRule& row : average_rules()) kinds.push_back(row.name);
  return {
      keys::choice(
          "ema.kind", "none",
          "average of past weights that is kept, saved and evaluated; swa: all count the same, ema: the latest "
          "most, annealing: ema that forgets the first ones",
          std::move(kinds)),
      keys::real_above("ema.decay", 0, 1, "0.9998", "what stays of the average when new weights come in"),
      keys::real_above(
          "ema.gamma", 0, keys::kUnlimited, "100",
          "annealing: after n updates new weights count for gamma / (gamma + n), as long as this is more than ema's"),
      count_key("ema.interval", "1", "steps from one that is averaged to the next", 1),
      count_key("ema.begin", "0", "first step that is averaged; until then the average is what the weights are", 0),
      count_key("ema.begin_epoch", "0", "the same in epochs: the first one whose steps are averaged, from 1; 0: off",
                0),
      keys::choice("ema.buffers", "copy",
                   "running statistics of the averaged model: copy: those of the trained one, average: averaged, too",
                   {"copy", "average"}),
  };
}

}  // namespace lockstep::optim
