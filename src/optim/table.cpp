// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/table.hpp>
#include <lockstep/optim/param_groups.hpp>

#include "rules.hpp"

namespace lockstep::optim {

namespace {

std::vector<std::string> names_of(const std::vector<Rule>& rules) {
  std::vector<std::string> names;
  for (const Rule& rule : rules) names.push_back(rule.name);
  return names;
}

/// The keys that every rule reads.
KeySpecs common_keys(const std::vector<Rule>& rules) {
  return {
      {.name = "optim.name",
       .type = KeyType::choice,
       .default_value = "adamw",
       .help = "how a step updates the parameters",
       .choices = names_of(rules)},
      {.name = "optim.lr",
       .type = KeyType::real,
       .default_value = "0.001",
       .help = "base learning rate, which sched.rule multiplies; sgd mostly wants more, lbfgs 1",
       .min = 0},
      {.name = "optim.weight_decay",
       .type = KeyType::real,
       .default_value = "0",
       .help = "pull towards zero: added to the gradient, or decoupled from it by adamw and lion (0.01 is usual there)",
       .min = 0},
      {.name = "optim.maximize",
       .type = KeyType::boolean,
       .default_value = "false",
       .help = "climb instead of descend"},
      {.name = "optim.no_decay",
       .type = KeyType::choice,
       .default_value = "none",
       .help = "norms_biases: no weight decay on parameters of fewer than two dimensions",
       .choices = {"none", "norms_biases"}},
      {.name = "optim.paramwise",
       .type = KeyType::texts,
       .default_value = "",
       .help = "other options for some of the parameters; `trainer config --groups` shows what comes of it",
       .parts = paramwise_parts()},
      {.name = "optim.auto_scale_lr",
       .type = KeyType::boolean,
       .default_value = "false",
       .help = "multiply every lr by the batch of a step over optim.base_batch_size"},
      {.name = "optim.base_batch_size",
       .type = KeyType::integer,
       .default_value = "0",
       .help = "samples of a step that optim.lr is meant for; needed by optim.auto_scale_lr",
       .min = 0,
       .max = 1 << 30},
      {.name = "optim.include_accumulation",
       .type = KeyType::boolean,
       .default_value = "true",
       .help = "optim.auto_scale_lr counts a whole step; false: only what one forward of all ranks takes, as "
               "train.micro_batch bounds it"}};
}

}  // namespace

const std::vector<Rule>& builtin_rules() {
  static const std::vector<Rule> rules = {sgd_rule(),       adam_rule(),   adamw_rule(), adagrad_rule(), rmsprop_rule(),
                                          adadelta_rule(),  adamax_rule(), nadam_rule(), radam_rule(),   asgd_rule(),
                                          rprop_rule(),     lion_rule(),   lars_rule(),  larc_rule(),    lamb_rule(),
                                          adafactor_rule(), muon_rule(),   lbfgs_rule()};
  return rules;
}

const Rule& find_rule(std::string_view name, const std::vector<Rule>& rules) {
  return find_row(rules, name, "optim.name");
}

KeySpecs optim_keys(const std::vector<Rule>& rules) { return keys_of_rows(common_keys(rules), rules); }

}  // namespace lockstep::optim
