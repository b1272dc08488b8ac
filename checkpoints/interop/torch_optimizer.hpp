// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoints/foreign/foreign.hpp"

/// The state of an optimizer as the classes of torch.optim have it.
namespace lockstep::checkpoints {

/// A parameter that an optimizer updates.
struct OptimizerParameter {
  std::string name;
  std::int64_t updates = 0;                 ///< that it has had
  std::map<std::string, Array> state = {};  ///< state by slot: "exp_avg"
};

/// Parameters with equal options.
struct OptimizerGroup {
  std::map<std::string, double> options = {};  ///< "lr", "beta1", ...; flags are 0 or 1
  double base_lr = 0;                          ///< lr before its schedule
  std::vector<OptimizerParameter> parameters = {};
};

/// The argument of load_state_dict: {"state": {0: {"step": ..., "exp_avg": ...}, ...}, "param_groups": [{"lr": ...,
/// "params": [0, 1, ...]}, ...]}. Parameters are numbered group by group in the order given; "param_names" of a group
/// lists their names. "initial_lr" is what the schedulers of torch read. Parameters without an update have no state.
/// @param type  value of optim.name
/// @throws CheckpointError  incompatible: torch.optim has no such optimizer, or not with this state
PythonValue torch_optimizer(const std::string& type, const std::vector<OptimizerGroup>& groups);

/// "torch.optim.AdamW", the class that reads the result.
/// @throws CheckpointError  as above
std::string torch_optimizer_class(const std::string& type);

}  // namespace lockstep::checkpoints
