// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/optim/rule.hpp>

#include <algorithm>

#include "core/text/parameter_names.hpp"
#include "core/text/table.hpp"
#include "optim/averages/average_times.hpp"

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

std::string begin_of_epoch(const std::string& epoch, const std::string& current) {
  if (epoch == "0") return current.empty() ? "0" : current;
  return epoch + "epochs";
}

}  // namespace

Every average_times(const Section& ema) {
  return Every::parse(ema.text("every"), ema.cite("every"), {.times = false, .never = false});
}

AverageOptions AverageOptions::from(const Section& ema) {
  const Every every = average_times(ema);
  const AverageOptions options{.decay = ema.real("decay"),
                               .gamma = ema.real("gamma"),
                               .interval = every.is_step_count() ? every.first().steps : 1,
                               .names = name_patterns(ema.text("names")),
                               .averages_buffers = ema.text("buffers") == "average"};
  if (options.decay >= 1) {
    throw ConfigError(ema.cite("decay") + ": with 1, the average would never change; set a number below 1");
  }
  return options;
}

const std::vector<AverageRule>& builtin_averages() {
  static const std::vector<AverageRule> rows = {
      {"ema", "exponential moving average with ema.decay", weight_of_ema},
      {"swa", "stochastic weight averaging: the mean of all weights", weight_of_swa},
      {"annealing", "moving average in which new weights first have the factor ema.gamma / (ema.gamma + updates)",
       weight_of_annealing},
  };
  return rows;
}

const AverageRule* find_average(const Section& ema, const std::vector<AverageRule>& rules) {
  return ema.text("kind") == "none" ? nullptr : &find_row(rules, ema.text("kind"), ema.cite("kind"));
}

KeySpecs ema_keys(const std::vector<AverageRule>& rules) {
  std::vector<std::string> kinds = {"none"};
  for (const AverageRule& row : rules) kinds.push_back(row.name);
  const std::vector<std::string> all_rules(kinds.begin() + 1, kinds.end());
  const auto of_any_rule = [&](const KeySpec& key) { return keys::read_by(key, "ema.kind", all_rules); };
  std::vector<std::string> readers_of_decay;
  std::vector<std::string> readers_of_gamma;
  for (const AverageRule& row : rules) {  // a rule of a program can use every option
    if (row.name != "swa") readers_of_decay.push_back(row.name);
    if (row.name != "swa" && row.name != "ema") readers_of_gamma.push_back(row.name);
  }
  return keys::titled(
      "Running average of the weights",
      {
          keys::choice(
              "ema.kind", "none",
              "Running average of the weights, which is also saved and evaluated. swa = mean of all weights; ema "
              "= exponential moving average; annealing = moving average with a higher rate at the beginning. "
              "Requires one extra copy of the parameters per host",
              std::move(kinds)),
          keys::read_by(keys::real_above("ema.decay", 0, 1, "0.9998",
                                         "Factor on the average in each update; new weights have the factor 1 - decay"),
                        "ema.kind", readers_of_decay),
          keys::read_by(keys::real_above(
                            "ema.gamma", 0, keys::kUnlimited, "100",
                            "After n updates, new weights have the factor gamma / (gamma + n) if this is larger than 1 "
                            "- ema.decay"),
                        "ema.kind", readers_of_gamma),
          of_any_rule(keys::renamed(keys::text("ema.every", "1",
                                               "Steps (10, counted from ema.begin) or epochs (1epochs) between updates "
                                               "of the average"),
                                    "ema.interval")),
          of_any_rule(
              keys::replacing(keys::text("ema.begin", "0",
                                         "First step or epoch that is averaged: 100 or 2epochs. Before, the average "
                                         "equals the weights"),
                              {.key = "ema.begin_epoch", .translate = begin_of_epoch})),
          of_any_rule(keys::expert(keys::words(
              "ema.names", "",
              "Parameters that are averaged: names or blocks, such as generator,head.*. The others are those of the "
              "trained model. If empty, all parameters are averaged"))),
          of_any_rule(keys::expert(keys::choice(
              "ema.buffers", "copy",
              "Buffers (running statistics) of the averaged model. copy = the buffers of the trained model; "
              "average = averaged like the weights",
              {"copy", "average"}))),
      });
}

}  // namespace lockstep::optim
