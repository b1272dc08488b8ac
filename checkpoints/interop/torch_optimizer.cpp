// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/interop/torch_optimizer.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <iterator>
#include <memory>
#include <span>
#include <string_view>

namespace lockstep::checkpoints {

namespace {

using Map = PythonValue::Map;
using List = PythonValue::List;

/// How an option of torch.optim is made of ours.
enum class OptionForm : std::uint8_t {
  number,
  flag,
  betas,     ///< a tuple of beta1 and beta2
  none,      ///< None: a choice of kernels, which is up to torch
  is_false,  ///< always False
  is_true,
};

struct TorchOption {
  std::string_view name;
  OptionForm form = OptionForm::number;
};

/// A class of torch.optim.
struct TorchOptimizer {
  std::string_view type;  ///< value of optim.name
  std::string_view name;  ///< of the class
  bool has_step;          ///< counts the updates of each parameter, as a float32 scalar
  std::span<const TorchOption> options;
  std::span<const std::string_view> slots;  ///< which have the same names there
};

constexpr TorchOption kSgd[] = {{"lr"},
                                {"momentum"},
                                {"dampening"},
                                {"weight_decay"},
                                {"nesterov", OptionForm::flag},
                                {"maximize", OptionForm::flag},
                                {"foreach", OptionForm::none},
                                {"differentiable", OptionForm::is_false},
                                {"fused", OptionForm::none}};
constexpr TorchOption kAdam[] = {{"lr"},
                                 {"betas", OptionForm::betas},
                                 {"eps"},
                                 {"weight_decay"},
                                 {"amsgrad", OptionForm::flag},
                                 {"maximize", OptionForm::flag},
                                 {"foreach", OptionForm::none},
                                 {"capturable", OptionForm::is_false},
                                 {"differentiable", OptionForm::is_false},
                                 {"fused", OptionForm::none},
                                 {"decoupled_weight_decay", OptionForm::is_false}};
constexpr TorchOption kAdamW[] = {{"lr"},
                                  {"betas", OptionForm::betas},
                                  {"eps"},
                                  {"weight_decay"},
                                  {"amsgrad", OptionForm::flag},
                                  {"maximize", OptionForm::flag},
                                  {"foreach", OptionForm::none},
                                  {"capturable", OptionForm::is_false},
                                  {"differentiable", OptionForm::is_false},
                                  {"fused", OptionForm::none},
                                  {"decoupled_weight_decay", OptionForm::is_true}};
constexpr TorchOption kRAdam[] = {{"lr"},
                                  {"betas", OptionForm::betas},
                                  {"eps"},
                                  {"weight_decay"},
                                  {"maximize", OptionForm::flag},
                                  {"foreach", OptionForm::none},
                                  {"capturable", OptionForm::is_false},
                                  {"decoupled_weight_decay", OptionForm::flag},
                                  {"differentiable", OptionForm::is_false}};
constexpr TorchOption kAdamax[] = {{"lr"},
                                   {"betas", OptionForm::betas},
                                   {"eps"},
                                   {"weight_decay"},
                                   {"foreach", OptionForm::none},
                                   {"maximize", OptionForm::flag},
                                   {"differentiable", OptionForm::is_false},
                                   {"capturable", OptionForm::is_false}};
constexpr TorchOption kRmsProp[] = {{"lr"},
                                    {"momentum"},
                                    {"alpha"},
                                    {"eps"},
                                    {"centered", OptionForm::flag},
                                    {"weight_decay"},
                                    {"capturable", OptionForm::is_false},
                                    {"foreach", OptionForm::none},
                                    {"maximize", OptionForm::flag},
                                    {"differentiable", OptionForm::is_false}};
constexpr TorchOption kAdagrad[] = {{"lr"},
                                    {"lr_decay"},
                                    {"eps"},
                                    {"weight_decay"},
                                    {"initial_accumulator_value"},
                                    {"foreach", OptionForm::none},
                                    {"maximize", OptionForm::flag},
                                    {"differentiable", OptionForm::is_false},
                                    {"fused", OptionForm::none}};
constexpr TorchOption kAdadelta[] = {{"lr"},
                                     {"rho"},
                                     {"eps"},
                                     {"weight_decay"},
                                     {"maximize", OptionForm::flag},
                                     {"capturable", OptionForm::is_false},
                                     {"foreach", OptionForm::none},
                                     {"differentiable", OptionForm::is_false}};

constexpr std::string_view kSgdSlots[] = {"momentum_buffer"};
constexpr std::string_view kAdamSlots[] = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
constexpr std::string_view kAdamaxSlots[] = {"exp_avg", "exp_inf"};
constexpr std::string_view kRmsPropSlots[] = {"square_avg", "momentum_buffer", "grad_avg"};
constexpr std::string_view kAdagradSlots[] = {"sum"};
constexpr std::string_view kAdadeltaSlots[] = {"square_avg", "acc_delta"};

constexpr TorchOptimizer kTorchOptimizers[] = {
    {"sgd", "SGD", false, kSgd, kSgdSlots},
    {"adam", "Adam", true, kAdam, kAdamSlots},
    {"adamw", "AdamW", true, kAdamW, kAdamSlots},
    {"radam", "RAdam", true, kRAdam, kAdamSlots},
    {"adamax", "Adamax", true, kAdamax, kAdamaxSlots},
    {"rmsprop", "RMSprop", true, kRmsProp, kRmsPropSlots},
    {"adagrad", "Adagrad", true, kAdagrad, kAdagradSlots},
    {"adadelta", "Adadelta", true, kAdadelta, kAdadeltaSlots},
};

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

PythonValue option_value(const OptimizerGroup& group, const TorchOption& option) {
  switch (option.form) {
    case OptionForm::number:
      return {option_of(group, std::string(option.name))};
    case OptionForm::flag:
      return {option_of(group, std::string(option.name)) != 0};
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
  for (const auto& [slot, array] : parameter.state) {
    if (std::find(row.slots.begin(), row.slots.end(), slot) == row.slots.end()) {
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
    for (const TorchOption& option : row.options) {
      entries.items.push_back({std::string(option.name), option_value(group, option)});
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
