// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/interop/torch_optimizer.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <iterator>
#include <memory>
#include <span>
#include <string_view>

#include "core/text/text.hpp"

namespace lockstep::checkpoints {

namespace {

using Map = PythonValue::Map;
using List = PythonValue::List;

/// A class of torch.optim.
struct TorchOptimizer {
  std::string_view type;  ///< value of optim.name
  std::string_view name;  ///< name of the class
  bool has_step;          ///< counts the updates of each parameter, as a float32 scalar
  std::string_view
      options;             ///< options in torch's order; numbers except those in kOptionForms; "=" marks a fixed value
  std::string_view slots;  ///< which have the same names there
};

constexpr TorchOptimizer kTorchOptimizers[] = {
    {"sgd", "SGD", false, "lr momentum dampening weight_decay nesterov maximize foreach differentiable fused",
     "momentum_buffer"},
    {"adam", "Adam", true,
     "lr betas eps weight_decay amsgrad maximize foreach capturable differentiable fused decoupled_weight_decay=False",
     "exp_avg exp_avg_sq max_exp_avg_sq"},
    {"adamw", "AdamW", true,
     "lr betas eps weight_decay amsgrad maximize foreach capturable differentiable fused decoupled_weight_decay=True",
     "exp_avg exp_avg_sq max_exp_avg_sq"},
    {"radam", "RAdam", true,
     "lr betas eps weight_decay maximize foreach capturable decoupled_weight_decay differentiable",
     "exp_avg exp_avg_sq"},
    {"adamax", "Adamax", true, "lr betas eps weight_decay foreach maximize differentiable capturable",
     "exp_avg exp_inf"},
    {"rmsprop", "RMSprop", true,
     "lr momentum alpha eps centered weight_decay capturable foreach maximize differentiable",
     "square_avg momentum_buffer grad_avg"},
    {"adagrad", "Adagrad", true,
     "lr lr_decay eps weight_decay initial_accumulator_value foreach maximize differentiable fused", "sum"},
    {"adadelta", "Adadelta", true, "lr rho eps weight_decay maximize capturable foreach differentiable",
     "square_avg acc_delta"},
};

/// How an option of torch.optim that is not a number is made of ours.
enum class OptionForm : std::uint8_t {
  number,
  flag,
  betas,     ///< a tuple of beta1 and beta2
  none,      ///< None: a choice of kernels, which is up to torch
  is_false,  ///< always False
  is_true,
};

using NamedForm = std::pair<std::string_view, OptionForm>;
constexpr NamedForm kOptionForms[] = {
    {"betas", OptionForm::betas},
    {"nesterov", OptionForm::flag},
    {"amsgrad", OptionForm::flag},
    {"maximize", OptionForm::flag},
    {"centered", OptionForm::flag},
    {"decoupled_weight_decay", OptionForm::flag},
    {"decoupled_weight_decay=False", OptionForm::is_false},
    {"decoupled_weight_decay=True", OptionForm::is_true},
    {"foreach", OptionForm::none},
    {"fused", OptionForm::none},
    {"capturable", OptionForm::is_false},
    {"differentiable", OptionForm::is_false},
};

OptionForm form_of(std::string_view option) {
  const auto* const row = std::ranges::find(kOptionForms, option, &NamedForm::first);
  return row == std::end(kOptionForms) ? OptionForm::number : row->second;
}

const TorchOptimizer& torch_row(const std::string& type) {
  std::string known;
  for (const TorchOptimizer& row : kTorchOptimizers) {
    if (row.type == type) return row;
    known += (known.empty() ? "" : ", ") + std::string(row.type);
  }
  throw CheckpointError("optim.name = " + type + ": torch.optim has no optimizer with its state; it has " + known)
      .as(CheckpointFault::incompatible);
}

Array float_scalar(float value) {
  const auto memory = std::make_shared<float>(value);
  return {.dtype = DType::float32, .shape = {}, .bytes = std::as_bytes(std::span(memory.get(), 1)), .owner = memory};
}

double option_of(const OptimizerGroup& group, const std::string& name) {
  const auto found = group.options.find(name);
  return found == group.options.end() ? 0 : found->second;
}

PythonValue option_value(const OptimizerGroup& group, const std::string& option) {
  switch (form_of(option)) {
    case OptionForm::number:
      return {option_of(group, option)};
    case OptionForm::flag:
      return {option_of(group, option) != 0};
    case OptionForm::betas:
      return {List{.items = {{option_of(group, "beta1")}, {option_of(group, "beta2")}}, .is_tuple = true}};
    case OptionForm::none:
      return {std::monostate()};
    case OptionForm::is_false:
      return {false};
    case OptionForm::is_true:
      return {true};
  }
  return {std::monostate()};
}

Map parameter_state(const TorchOptimizer& row, const OptimizerParameter& parameter) {
  Map state;
  if (row.has_step) state.items.push_back({"step", PythonValue{float_scalar(static_cast<float>(parameter.updates))}});
  const std::vector<std::string> slots = words_in(std::string(row.slots), ' ');
  for (const auto& [slot, array] : parameter.state) {
    if (std::ranges::find(slots, slot) == slots.end()) {
      throw CheckpointError("torch.optim." + std::string(row.name) + " has no state '" + slot + "', which '" +
                            parameter.name + "' has")
          .as(CheckpointFault::incompatible);
    }
    state.items.push_back({slot, PythonValue{array}});
  }
  return state;
}

}  // namespace

PythonValue torch_optimizer(const std::string& type, const std::vector<OptimizerGroup>& groups) {
  const TorchOptimizer& row = torch_row(type);
  Map state;
  List param_groups;
  std::int64_t number = 0;
  for (const OptimizerGroup& group : groups) {
    Map entries;
    for (const std::string& option : words_in(std::string(row.options), ' ')) {
      entries.items.push_back({option.substr(0, option.find('=')), option_value(group, option)});
    }
    List numbers;
    List names;
    for (const OptimizerParameter& parameter : group.parameters) {
      numbers.items.push_back({number});
      names.items.push_back({parameter.name});
      Map of_parameter = parameter.updates > 0 ? parameter_state(row, parameter) : Map();
      if (!of_parameter.items.empty()) state.items.push_back({number, PythonValue{std::move(of_parameter)}});
      ++number;
    }
    entries.items.push_back({"initial_lr", PythonValue{group.base_lr}});
    entries.items.push_back({"param_names", PythonValue{std::move(names)}});
    entries.items.push_back({"params", PythonValue{std::move(numbers)}});
    param_groups.items.push_back({std::move(entries)});
  }
  Map root;
  root.items.push_back({"state", PythonValue{std::move(state)}});
  root.items.push_back({"param_groups", PythonValue{std::move(param_groups)}});
  return {std::move(root)};
}

std::string torch_optimizer_class(const std::string& type) {
  return "torch.optim." + std::string(torch_row(type).name);
}

}  // namespace lockstep::checkpoints
