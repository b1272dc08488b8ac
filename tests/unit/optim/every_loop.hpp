// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "make_optimizer.hpp"

namespace lockstep::optim {

/// Settings that together run every loop of every built-in rule; the first setting names the rule.
inline const std::vector<OptionValues>& every_loop() {
  static const std::vector<OptionValues> all = {
      {{"name", "sgd"}, {"weight_decay", "0.1"}},
      {{"name", "sgd"}, {"momentum", "0.9"}, {"weight_decay", "0.1"}, {"dampening", "0.3"}},
      {{"name", "sgd"}, {"momentum", "0.9"}, {"nesterov", "true"}},
      {{"name", "adam"}, {"lr", "0.01"}},
      {{"name", "adam"}, {"lr", "0.01"}, {"weight_decay", "0.1"}},
      {{"name", "adam"}, {"lr", "0.01"}, {"weight_decay", "0.1"}, {"amsgrad", "true"}},
      {{"name", "adamw"}, {"lr", "0.01"}, {"weight_decay", "0.1"}},
      {{"name", "adamw"}, {"lr", "0.01"}, {"amsgrad", "true"}},
      {{"name", "adagrad"}, {"lr", "0.1"}, {"weight_decay", "0.1"}, {"initial_accumulator_value", "0.1"}},
      {{"name", "rmsprop"}, {"lr", "0.01"}, {"weight_decay", "0.1"}},
      {{"name", "rmsprop"}, {"lr", "0.01"}, {"momentum", "0.9"}},
      {{"name", "rmsprop"}, {"lr", "0.01"}, {"centered", "true"}},
      {{"name", "rmsprop"}, {"lr", "0.01"}, {"centered", "true"}, {"momentum", "0.9"}},
      {{"name", "adadelta"}, {"lr", "1"}, {"weight_decay", "0.1"}},
      {{"name", "adamax"}, {"lr", "0.01"}, {"weight_decay", "0.1"}},
      {{"name", "nadam"}, {"lr", "0.01"}, {"weight_decay", "0.1"}},
      {{"name", "nadam"}, {"lr", "0.01"}, {"weight_decay", "0.1"}, {"decoupled_weight_decay", "true"}},
      {{"name", "radam"}, {"lr", "0.01"}, {"weight_decay", "0.1"}},
      {{"name", "radam"}, {"lr", "0.01"}, {"betas", "0.9,0.5"}, {"decoupled_weight_decay", "true"}},
      {{"name", "asgd"}, {"lr", "0.01"}, {"weight_decay", "0.1"}},
      {{"name", "asgd"}, {"lr", "0.01"}, {"t0", "0"}},
      {{"name", "rprop"}, {"lr", "0.01"}},
      {{"name", "lion"}, {"lr", "0.001"}, {"weight_decay", "0.1"}},
      {{"name", "lion"}, {"lr", "0.001"}, {"caution", "true"}},
      {{"name", "lars"}, {"lr", "0.1"}, {"weight_decay", "0.1"}},
      {{"name", "lars"}, {"lr", "0.1"}, {"momentum", "0.9"}, {"joint_norm", "true"}, {"always_adapt", "true"}},
      {{"name", "larc"}, {"lr", "0.1"}, {"momentum", "0.9"}, {"weight_decay", "0.1"}, {"trust_clip", "true"}},
      {{"name", "lamb"}, {"lr", "0.01"}},
      {{"name", "lamb"}, {"lr", "0.01"}, {"weight_decay", "0.1"}},
      {{"name", "lamb"}, {"lr", "0.01"}, {"weight_decay", "0.1"}, {"decoupled_weight_decay", "true"}},
      {{"name", "adafactor"}, {"lr", "0.1"}, {"weight_decay", "0.1"}},
      {{"name", "muon"}, {"lr", "0.1"}, {"momentum", "0.9"}, {"nesterov", "true"}, {"weight_decay", "0.1"}},
      {{"name", "muon"}, {"lr", "0.1"}, {"momentum", "0.9"}, {"ns_bf16", "false"}},
  };
  return all;
}

}  // namespace lockstep::optim
