// SPDX-License-Identifier: BSD-3-Clause

#include <fmt/format.h>

#include "checkpoints/interop/torch_optimizer.hpp"
#include "ckpt/convert/convert.hpp"
#include "ckpt/reading/locate.hpp"
#include "ckpt/reading/text.hpp"
#include "core/text/text.hpp"
#include "families/names.hpp"

namespace lockstep::ckpt {

namespace {

using checkpoints::OptimizerGroup;
using checkpoints::OptimizerParameter;

const std::string kOptimizers = "/optim/";
const std::string kOptimizer = "/optim/0";
constexpr const char* kMaster = "master";  // float32 values of 16-bit parameters, which torch.optim does not have

[[noreturn]] void refuse_optimizer(const InspectedFile& source, const std::string& message) {
  throw Failure(Exit::incompatible, escaped(source.path()) + ": " + message);
}

/// The numbers of the parameter groups, "0" and so on.
std::vector<std::string> group_numbers(const InspectedFile& source) {
  std::vector<std::string> numbers;
  while (source.has_group(kOptimizer + "/groups/" + std::to_string(numbers.size()))) {
    numbers.push_back(std::to_string(numbers.size()));
  }
  return numbers;
}

std::string type_of(const InspectedFile& source) {
  std::vector<std::string> parts;
  for (const std::string& group : source.groups()) {
    const bool is_part = group.starts_with(kOptimizers) && group.find('/', kOptimizers.size()) == std::string::npos;
    if (is_part) parts.push_back(group.substr(kOptimizers.size()));
  }
  if (parts.empty()) throw Failure(Exit::not_found, escaped(source.path()) + ": it contains no state of an optimizer");
  if (parts != std::vector<std::string>{"0"}) {
    refuse_optimizer(source, "it contains the optimizers of several parts (" + escaped(joined(parts)) +
                                 "), but the layout of torch.optim is that of one");
  }
  const auto* const text = source.attribute<std::string>(kOptimizer, "type");
  if (text == nullptr) refuse_optimizer(source, "its optimizer has no type");
  return *text;
}

/// Parameters with their states, by name.
std::map<std::string, OptimizerParameter> parameters_of(const InspectedFile& source) {
  const std::vector<std::string> names = words_in(source.document(kOptimizer + "/param_names"), '\n');
  const FileArray& steps = source.find(kOptimizer + "/step");
  const checkpoints::Array counts = source.read(steps);
  if (counts.dtype != DType::int64 || number_count(counts) != std::ssize(names)) {
    refuse_optimizer(source, "its optimizer does not have one count of updates per parameter");
  }
  std::map<std::string, OptimizerParameter> parameters;
  with_numbers(counts, [&](auto load, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::string& name = names[static_cast<std::size_t>(i)];
      parameters[name] = {.name = name, .updates = static_cast<std::int64_t>(load(i))};
    }
  });
  const std::string states = kOptimizer + "/state/";
  for (const FileArray& info : source.arrays()) {
    if (!info.path.starts_with(states)) continue;
    const auto slash = info.path.find('/', states.size());
    const std::string slot = info.path.substr(states.size(), slash - states.size());
    const auto parameter = parameters.find(checkpoints::decode_name(info.path.substr(slash + 1)));
    if (slot != kMaster && parameter != parameters.end()) parameter->second.state.emplace(slot, source.read(info));
  }
  return parameters;
}

OptimizerGroup options_of(const InspectedFile& source, const std::string& number) {
  OptimizerGroup group;
  for (const auto& [name, value] : source.attributes(kOptimizer + "/groups/" + number)) {
    const auto* const real = std::get_if<double>(&value);
    if (real == nullptr) continue;
    if (name == "base_lr") group.base_lr = *real;
    group.options.emplace(name, *real);
  }
  return group;
}

/// The parameters of each group, in the order of the model.
std::vector<std::vector<std::string>> names_of_groups(const InspectedFile& source,
                                                      const std::vector<std::string>& numbers) {
  const std::vector<std::string> all = words_in(source.document(kOptimizer + "/param_names"), '\n');
  if (numbers.size() == 1) return {all};
  std::vector<std::vector<std::string>> names;
  for (const std::string& number : numbers) {
    names.push_back(words_in(source.document("/meta" + kOptimizer + "/groups/" + number), '\n'));
    if (names.back().empty()) {
      refuse_optimizer(source, "it does not state which parameter belongs to which of its " +
                                   std::to_string(numbers.size()) +
                                   " groups, as checkpoints of earlier versions; resume the run for one step");
    }
  }
  return names;
}

/// The arrays in the order and under the names of a library, and in its shapes.
std::vector<OptimizerParameter> in_library_order(std::vector<OptimizerParameter> parameters,
                                                 const families::PublicModel& model) {
  std::vector<std::string> names;
  std::map<std::string, OptimizerParameter> by_name;
  for (OptimizerParameter& parameter : parameters) {
    names.push_back(parameter.name);
    by_name.emplace(parameter.name, std::move(parameter));
  }
  std::vector<OptimizerParameter> result;
  for (const families::PublicName& name : families::public_names(model, names)) {
    OptimizerParameter parameter = by_name.at(name.ours);
    parameter.name = name.theirs;
    for (auto& [slot, array] : parameter.state) {
      array.shape = families::to_public_shape(name.operation, array.shape);
    }
    result.push_back(std::move(parameter));
  }
  return result;
}

}  // namespace

Exit convert_optimizer(const Request& request) {
  const std::string target = request.text("to");
  if (checkpoints::export_kind_of(target) != checkpoints::ExportKind::pytorch) {
    throw usage_error("convert --only optimizer needs --to FILE, ending in .pt or .pth");
  }
  for (const char* const option : {"rename", "filter", "dtype", "class-names"}) {
    if (request.has(option)) throw usage_error(std::string("--only optimizer cannot be combined with --") + option);
  }
  if (request.has("as")) library_of(request);
  const InspectedFile source = open_source(request.paths[0]);
  require_own(source, "--only optimizer");
  const std::string type = type_of(source);
  const std::string torch_class = checkpoints::torch_optimizer_class(type);
  std::optional<families::PublicModel> model;
  if (request.has("as")) model = public_model_of(source, request, "/model");

  const std::map<std::string, OptimizerParameter> parameters = parameters_of(source);
  const std::vector<std::string> numbers = group_numbers(source);
  const auto names = names_of_groups(source, numbers);
  std::vector<OptimizerGroup> groups;
  for (std::size_t g = 0; g < numbers.size(); ++g) {
    OptimizerGroup group = options_of(source, numbers[g]);
    for (const std::string& name : names[g]) {
      const auto found = parameters.find(name);
      if (found == parameters.end()) refuse_optimizer(source, "its groups contain an unknown parameter");
      group.parameters.push_back(found->second);
    }
    if (model) group.parameters = in_library_order(std::move(group.parameters), *model);
    groups.push_back(std::move(group));
  }
  checkpoints::write_pytorch_value(target, checkpoints::torch_optimizer(type, groups));
  checkpoints::read_foreign(target);
  request.wants_json()
      ? print(OrderedJson{{"from", escaped(source.path())},
                          {"to", escaped(target)},
                          {"class", torch_class},
                          {"groups", groups.size()},
                          {"parameters", parameters.size()}})
      : print(fmt::format("{}: state of {} for {} parameters in {} groups, {}\n", escaped(target), torch_class,
                          parameters.size(), groups.size(), exact_bytes(bytes_of(target))));
  return Exit::ok;
}

}  // namespace lockstep::ckpt
