// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/optim/optim_wrapper.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <set>

#include "optim/clip.hpp"
#include "optim/update/tensor_parameters.hpp"
#include "support/device_parameters_double.hpp"
#include "support/reference.hpp"

namespace lockstep::testing::reference {
namespace optimizers_test {

using optim::Optimizer;
using optim::ParamGroup;
using Settings = std::map<std::string, std::string>;  // settings of section `optim`, by key

/// inputs.json: where every optimizer starts and what it is given.
struct Inputs {
  std::vector<FlatParametersDouble::Parameter> parameters;
  std::map<std::string, StoredNumbers> initial;
  std::vector<std::map<std::string, StoredNumbers>>
      gradients;  // gradients by step and name; a name without gradient is missing
};

Inputs read_inputs() {
  const Json document = load("optimizers/inputs.json");
  Inputs inputs;
  for (const auto& [name, tensor] : document.at("initial").items()) {
    inputs.initial[name] = numbers(tensor);
    inputs.parameters.push_back({name, inputs.initial[name].shape});
  }
  for (const Json& step : document.at("gradients")) {
    auto& gradients = inputs.gradients.emplace_back();
    for (const auto& [name, tensor] : step.items()) {
      if (!tensor.is_null()) gradients[name] = numbers(tensor);
    }
  }
  if (inputs.gradients.size() != document.at("steps").get<std::size_t>()) throw std::runtime_error("steps are missing");
  return inputs;
}

const Inputs& inputs() {
  static const Inputs stored = read_inputs();
  return stored;
}

template <class T>
std::vector<T> narrowed(const std::vector<double>& values) {
  std::vector<T> result;
  for (const double value : values) result.push_back(static_cast<T>(value));
  return result;
}

template <class T>
std::vector<double> widened(std::span<const T> values) {
  return {values.begin(), values.end()};
}

template <class T>
constexpr DType kDType = sizeof(T) == 4 ? DType::float32 : DType::float64;

template <class T>
void set_gradients(FlatParametersDouble& parameters, const std::map<std::string, StoredNumbers>& gradients) {
  parameters.drop_gradients();
  for (const auto& [name, gradient] : gradients) parameters.set_gradient(name, narrowed<T>(gradient.data));
}

/// How a step updates: by loops over pieces, or by operations on tensors as on a GPU.
enum class Path { loops, tensors };

std::unique_ptr<FlatParametersDouble> make_parameters(Path path, DType dtype,
                                                      const std::vector<FlatParametersDouble::Parameter>& parameters) {
  if (path == Path::tensors) return std::make_unique<DeviceParametersDouble>(dtype, parameters);
  return std::make_unique<FlatParametersDouble>(dtype, parameters);
}

/// Runs the case on both paths.
template <class Run>
void on_both_paths(const Run& run) {
  for (const Path path : {Path::loops, Path::tensors}) {
    SCOPED_TRACE(path == Path::loops ? "loops" : "tensors");
    run(path);
  }
}

/// A class of another library: our rule, and what it calls otherwise.
struct Class {
  std::string rule;
  Settings args;           ///< its arguments, each with our key of section `optim`; "=" where it is the same
  Settings defaults = {};  ///< its defaults that differ from ours
  Settings states = {};    ///< its states that we call otherwise; "" where ours follows from the step alone
};

Class find_class(const std::string& name) {
  const Settings lr = {{"lr", "="}, {"weight_decay", "="}};
  const auto with = [](Settings settings, const Settings& more) {
    settings.insert(more.begin(), more.end());
    return settings;
  };
  const auto same = [&](const std::vector<std::string>& keys) {
    Settings args = lr;
    for (const std::string& key : keys) args[key] = "=";
    return args;
  };
  const Settings of_lars = with(same({"momentum", "dampening", "nesterov", "trust_clip", "always_adapt", "eps"}),
                                {{"trust_coeff", "trust_coefficient"}});
  const std::map<std::string, Class> classes = {
      {"torch.SGD", {"sgd", same({"momentum", "dampening", "nesterov", "maximize"})}},
      {"torch.Adam", {"adam", same({"betas", "eps", "amsgrad", "maximize"})}},
      {"torch.AdamW", {"adamw", same({"betas", "eps", "amsgrad", "maximize"})}},
      {"torch.Adagrad", {"adagrad", same({"lr_decay", "initial_accumulator_value", "eps", "maximize"})}},
      {"torch.RMSprop", {"rmsprop", same({"alpha", "eps", "momentum", "centered", "maximize"})}},
      {"torch.Adadelta", {"adadelta", same({"rho", "eps", "maximize"})}},
      {"torch.Adamax", {"adamax", same({"betas", "eps", "maximize"})}},
      {"torch.NAdam",
       {.rule = "nadam",
        .args = same({"betas", "eps", "momentum_decay", "decoupled_weight_decay", "maximize"}),
        .states = {{"mu_product", ""}}}},
      {"torch.RAdam", {"radam", same({"betas", "eps", "decoupled_weight_decay", "maximize"})}},
      {"timm.Lion", {"lion", same({"betas", "caution", "maximize"})}},
      {"timm.Lars", {"lars", of_lars, {{"lr", "1"}}}},
      {"vissl._LARS",
       {.rule = "lars",
        .args = with(same({"momentum"}), {{"eta", "trust_coefficient"}, {"exclude_bias_and_norm", "!adapt_vectors"}}),
        .defaults = {{"lr", "0.1"}, {"momentum", "0.9"}, {"joint_norm", "true"}, {"always_adapt", "true"}},
        .states = {{"mu", "momentum_buffer"}}}},
      {"apex.LARC",
       {"larc",
        with(same({"momentum"}), {{"trust_coefficient", "="}, {"clip", "trust_clip"}}),
        {{"trust_clip", "true"}}}},
      {"timm.Lamb",
       {"lamb",
        with(same({"betas", "eps", "bias_correction", "grad_averaging", "max_grad_norm", "trust_clip", "always_adapt"}),
             {{"decoupled_decay", "decoupled_weight_decay"}}),
        {{"max_grad_norm", "1"}}}},
  };
  const auto found = classes.find(name);
  if (found == classes.end()) throw std::runtime_error("no test knows the class '" + name + "'");
  return found->second;
}

std::string text_of(const Json& value) {
  if (value.is_null()) return "0";  // off
  if (!value.is_array()) return value.dump();
  std::string list;
  for (const Json& item : value) list += (list.empty() ? "" : ",") + item.dump();
  return list;
}

void merge(Settings& settings, const Json& args, const Class& known) {
  for (const auto& [key, value] : args.items()) {
    if (key == "foreach") continue;  // how the other library loops
    const auto ours = known.args.find(key);
    if (ours == known.args.end()) throw std::runtime_error("no test knows the argument '" + key + "'");
    if (ours->second.starts_with('!')) {
      settings[ours->second.substr(1)] = value.get<bool>() ? "false" : "true";
    } else {
      settings[ours->second == "=" ? key : ours->second] = text_of(value);
    }
  }
}

ParamGroup group_of(const optim::Rule& rule, const Settings& settings, const std::vector<std::string>& names) {
  Section section = Section::with_defaults("optim", optim::optim_keys());
  section.set("name", rule.name, "reference");
  for (const auto& [key, value] : settings) section.set(key, value, "reference");
  std::vector<optim::ParameterInfo> infos;
  for (const std::string& name : names) infos.push_back({.name = name, .dims = 2});
  return optim::build_groups(section, rule, infos).front();
}

std::vector<ParamGroup> groups_of(const Json& one_case, const Class& known) {
  std::vector<ParamGroup> groups;
  for (const Json& group : one_case.at("groups")) {
    require_known_fields(group, {"params", "options"});
    Settings settings = known.defaults;
    merge(settings, one_case.at("args"), known);
    merge(settings, group.at("options"), known);
    groups.push_back(group_of(optim::find_rule(known.rule), settings, group.at("params")));
  }
  return groups;
}

const optim::Options& options_of(const Optimizer& optimizer, const std::string& parameter) {
  for (const ParamGroup& group : optimizer.groups()) {
    const auto& names = group.parameters;
    if (std::find(names.begin(), names.end(), parameter) != names.end()) return group.options;
  }
  throw std::logic_error("no group has " + parameter);
}

/// The values that are stored of one parameter, under the names of our states.
std::map<std::string, Json> states_of(const Json& stored, const Class& known, const std::vector<std::string>& names) {
  std::map<std::string, Json> states;
  for (const auto& [name, value] : stored.items()) {
    const auto renamed = known.states.find(name);
    const std::string ours = renamed == known.states.end() ? name : renamed->second;
    const bool is_kept = ours == "step" || std::find(names.begin(), names.end(), ours) != names.end();
    if (is_kept) {
      states[ours] = value;
    } else if (!ours.empty()) {
      throw std::runtime_error("no test knows the state '" + name + "'");
    }
  }
  return states;
}

/// Compares what the optimizer keeps for one parameter with the stored `state`, which holds what exists by then: most
/// classes create the state of a parameter with its first gradient, and some before the first step.
template <class T>
void expect_state(Optimizer& optimizer, std::size_t segment_index, const Class& known, const optim::Segment& segment,
                  const Json& stored, bool has_had_gradient, const Tolerance& tolerance) {
  const auto steps = static_cast<double>(optimizer.steps(0)[segment_index]);
  const std::vector<std::string> names = optimizer.rule().state_names(options_of(optimizer, segment.name));
  const std::map<std::string, Json> state = states_of(stored, known, names);
  EXPECT_EQ(steps, state.contains("step") ? numbers(state.at("step")).data.at(0) : steps);
  for (std::size_t slot = 0; slot < names.size(); ++slot) {
    const auto* first = reinterpret_cast<const T*>(optimizer.state(0, slot).data()) + segment.offset;
    const auto actual = widened<T>({first, static_cast<std::size_t>(segment.count)});
    const bool is_stored = state.contains(names[slot]);
    EXPECT_TRUE(is_stored || !has_had_gradient) << names[slot] << " is not stored";
    const std::vector<double> zeros(actual.size());
    expect_close(actual, is_stored ? numbers(state.at(names[slot])).data : zeros, tolerance, names[slot]);
  }
}

template <class T>
void run_optimizer(const Json& one_case, Path path, const Tolerance& tolerance) {
  SCOPED_TRACE(std::string(name_of(kDType<T>)));
  const Json& expected = one_case.at(std::string(name_of(kDType<T>)));
  require_known_fields(expected, {"params", "state"});
  if (expected.at("params").size() != inputs().gradients.size() ||
      expected.at("state").size() != inputs().gradients.size()) {
    throw std::runtime_error("another number of steps than inputs.json");
  }
  const auto owner = make_parameters(path, kDType<T>, inputs().parameters);
  FlatParametersDouble& parameters = *owner;
  for (const auto& [name, values] : inputs().initial) parameters.set_values(name, narrowed<T>(values.data));
  const Class known = find_class(one_case.at("class"));
  Optimizer optimizer(optim::find_rule(known.rule), groups_of(one_case, known), parameters);
  std::set<std::string> with_gradient;  // `with_gradient` in any step so far
  for (std::size_t t = 0; t < inputs().gradients.size(); ++t) {
    set_gradients<T>(parameters, inputs().gradients[t]);
    for (const auto& [name, gradient] : inputs().gradients[t]) with_gradient.insert(name);
    path == Path::tensors ? optimizer.step_tensors({}) : optimizer.step();
    const auto& segments = parameters.blocks()[0].segments;
    EXPECT_EQ(expected.at("params")[t].size(), segments.size());
    for (std::size_t s = 0; s < segments.size(); ++s) {
      const std::string& name = segments[s].name;
      SCOPED_TRACE("step " + std::to_string(t) + ", parameter " + name);
      expect_close(widened<T>(parameters.values<T>(name)), numbers(expected.at("params")[t].at(name)).data, tolerance,
                   "value");
      expect_state<T>(optimizer, s, known, segments[s], expected.at("state")[t].at(name), with_gradient.contains(name),
                      tolerance);
    }
  }
}

void run_optimizers(const Json& one_case) {
  require_known_fields(one_case, {"name", "class", "args", "groups", "float32", "float64"});
  on_both_paths([&](Path path) {
    // The order of multiply-adds inside a step is free: a few ulp in each of ten steps.
    run_optimizer<float>(one_case, path, {.absolute = 2e-6, .relative = 2e-6});
    // The tolerance in double: the same few ulp; the absolute part is for values that cancel to nearly nothing.
    run_optimizer<double>(one_case, path, {.absolute = 1e-16, .relative = 1e-12});
  });
}

/// The gradients of a clipping case: its own `input_grad` of a parameter p, else those of inputs.json that the file
/// names.
std::map<std::string, StoredNumbers> gradients_of(const Json& one_case) {
  if (!one_case.contains("input_grad")) {
    static const std::size_t index = load("optimizers/clip_grad.json").at("gradients_index");
    return inputs().gradients.at(index);
  }
  StoredNumbers gradient{.dtype = one_case.at("dtype"), .shape = {}, .data = {}};
  for (const Json& value : one_case.at("input_grad")) gradient.data.push_back(number(value));
  gradient.shape = {static_cast<std::int64_t>(gradient.data.size())};
  return {{"p", gradient}};
}

optim::Clip read_clip(const Json& one_case) {
  std::vector<std::string> fields = {"kind", "dtype", "grads", "input_grad", "note"};
  const std::string kind = one_case.at("kind");
  if (kind == "norm") {
    fields.insert(fields.end(), {"norm_type", "max_norm", "total_norm"});
    require_known_fields(one_case, fields);
    return {.max_norm = number(one_case.at("max_norm")), .norm_type = number(one_case.at("norm_type"))};
  }
  if (kind == "value") {
    fields.emplace_back("clip_value");
    require_known_fields(one_case, fields);
    return {.max_value = number(one_case.at("clip_value"))};
  }
  throw std::runtime_error("no test knows the kind '" + kind + "'");
}

template <class T>
void run_clip(const Json& one_case, Path path, const Tolerance& tolerance) {
  const std::map<std::string, StoredNumbers> gradients = gradients_of(one_case);
  std::vector<FlatParametersDouble::Parameter> names;
  for (const auto& [name, gradient] : gradients) names.push_back({name, gradient.shape});
  const auto owner = make_parameters(path, kDType<T>, names);
  FlatParametersDouble& parameters = *owner;
  set_gradients<T>(parameters, gradients);
  const optim::Clip clip = read_clip(one_case);
  const bool has_norm = clip.max_norm > 0;
  at::Tensor norm_tensor;
  if (has_norm && path == Path::tensors) norm_tensor = optim::gradient_norm_tensor(parameters, clip.norm_type);
  const double norm = !has_norm               ? 0
                      : norm_tensor.defined() ? norm_tensor.item<double>()
                                              : optim::gradient_norm(parameters, clip.norm_type);
  if (has_norm) expect_close({norm}, numbers(one_case.at("total_norm")).data, tolerance, "total_norm");
  // One step of size 1 ends at the negative of what the clipped gradient is from zero.
  Section section = Section::with_defaults("optim", optim::optim_keys());
  section.set("lr", "1", "test");
  section.set("name", "sgd", "test");
  const optim::Rule& rule = optim::find_rule("sgd");
  std::vector<optim::ParameterInfo> infos;
  for (const auto& [name, gradient] : gradients) infos.push_back({name, 1});
  Optimizer optimizer(rule, optim::build_groups(section, rule, infos), parameters);
  if (path == Path::tensors) {
    optim::TensorChange change =
        optim::change_by(clip, has_norm ? std::vector<at::Tensor>{norm_tensor} : std::vector<at::Tensor>());
    change.is_void.reset();  // a void update does not show what clipping makes of the gradients
    optimizer.step_tensors(change);
  } else {
    optimizer.step(optim::change_by(clip, norm));
  }
  for (const auto& [name, gradient] : gradients) EXPECT_TRUE(one_case.at("grads").contains(name)) << name;
  for (const auto& [name, expected] : one_case.at("grads").items()) {
    EXPECT_EQ(expected.is_null(), !gradients.contains(name)) << name;
    if (expected.is_null()) continue;
    std::vector<T> actual;
    for (const T value : parameters.values<T>(name)) actual.push_back(-value);
    expect_close({actual.begin(), actual.end()}, numbers(expected).data, tolerance, name);
  }
}

void run_clips(const Json& one_case) {
  SCOPED_TRACE("norm_type " + one_case.value("norm_type", Json()).dump() + ", max_norm " +
               one_case.value("max_norm", Json()).dump());
  const std::string dtype = one_case.at("dtype");
  if (dtype == "float32") {
    // Some ulp of a sum in another order.
    on_both_paths([&](Path path) { run_clip<float>(one_case, path, {.relative = 2e-6}); });
  } else if (dtype == "float64") {
    on_both_paths([&](Path path) { run_clip<double>(one_case, path, {.relative = 1e-12}); });
  } else {
    throw std::runtime_error("no test knows the dtype '" + dtype + "'");
  }
}

// lbfgs.json: function q is 0.5 x'Ax - b'x, function r is Rosenbrock's.

/// An optimizer of the one parameter "x".
Optimizer make_lbfgs(const Json& args, FlatParametersDouble& parameters) {
  require_known_fields(args, {"lr", "max_iter", "history_size", "line_search_fn"});
  Section section = Section::with_defaults("optim", optim::optim_keys());
  section.set("name", "lbfgs", "test");
  for (const auto& [key, value] : args.items()) {
    if (!value.is_null()) section.set(key, value.is_string() ? value.get<std::string>() : value.dump(), "test");
  }
  const optim::Rule& rule = optim::find_rule("lbfgs");
  return {rule, optim::build_groups(section, rule, std::vector<optim::ParameterInfo>{{.name = "x"}}), parameters};
}

template <class T>
double quadratic(std::span<const T> x, std::span<T> gradient) {
  static const Json document = load("optimizers/lbfgs.json");
  static const std::vector<T> a = narrowed<T>(numbers(document.at("A")).data);
  static const std::vector<T> b = narrowed<T>(numbers(document.at("b")).data);
  T loss = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    T product = 0;
    for (std::size_t j = 0; j < x.size(); ++j) product += a[i * x.size() + j] * x[j];
    loss += x[i] * (product / 2 - b[i]);
    gradient[i] = product - b[i];
  }
  return loss;
}

template <class T>
double rosenbrock(std::span<const T> x, std::span<T> gradient) {
  const T bend = x[1] - x[0] * x[0];
  const T rest = 1 - x[0];
  gradient[0] = -400 * bend * x[0] - 2 * rest;
  gradient[1] = 200 * bend;
  return 100 * bend * bend + rest * rest;
}

struct LbfgsStep {
  double loss = 0;
  std::vector<double> x;  // parameters after the step
  std::int64_t calls = 0;
};

/// The steps of a case. `disturb` changes the values of x at which the function is computed.
template <class T>
std::vector<LbfgsStep> lbfgs_steps(const Json& one_case, Path path,
                                   const std::function<void(std::span<T>)>& disturb = {}) {
  const Json& expected = one_case.at(std::string(name_of(kDType<T>)));
  require_known_fields(expected, {"initial", "x_after_step", "loss_returned", "closure_calls_total"});
  const std::string function = one_case.at("function");
  if (function != "q" && function != "r") throw std::runtime_error("no test knows the function '" + function + "'");
  const std::vector<T> initial = narrowed<T>(numbers(expected.at("initial")).data);
  const auto owner = make_parameters(path, kDType<T>, {{"x", {static_cast<std::int64_t>(initial.size())}}});
  FlatParametersDouble& parameters = *owner;
  parameters.set_values<T>("x", initial);
  const std::span<const T> x = parameters.values<T>("x");
  Optimizer lbfgs = make_lbfgs(one_case.at("args"), parameters);
  std::vector<LbfgsStep> steps;
  std::int64_t calls = 0;
  for (std::size_t t = 0; t < expected.at("x_after_step").size(); ++t) {
    std::vector<double> losses;
    lbfgs.step_with_closure([&] {
      ++calls;
      std::vector<T> point(x.begin(), x.end());
      if (disturb) disturb(point);
      std::vector<T> gradient(x.size());
      losses.push_back(function == "q" ? quadratic<T>(point, gradient) : rosenbrock<T>(point, gradient));
      parameters.set_gradient<T>("x", gradient);
      return losses.back();
    });
    steps.push_back({.loss = losses.front(), .x = widened<T>(x), .calls = calls});
  }
  return steps;
}

/// How far rounding to float32 moves the loss of each step: the largest of 50 runs in float64 in which each x is wrong
/// by up to one unit in the last place of float32. The line search amplifies this, differently in each case and step.
std::vector<double> rounding_of_losses(const Json& one_case, const std::vector<LbfgsStep>& exact) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> share(-std::numeric_limits<float>::epsilon(),
                                               std::numeric_limits<float>::epsilon());
  std::vector<double> largest(exact.size());
  for (int run = 0; run < 50; ++run) {
    const auto steps = lbfgs_steps<double>(one_case, Path::loops, [&](std::span<double> x) {
      for (double& value : x) value *= 1 + share(random);
    });
    for (std::size_t t = 0; t < exact.size(); ++t) {
      largest[t] = std::max(largest[t], std::abs(steps[t].loss - exact[t].loss));
    }
  }
  return largest;
}

void run_lbfgs(const Json& one_case, Path path) {
  const Json& expected = one_case.at("float64");
  const auto in_double = lbfgs_steps<double>(one_case, path);
  const auto in_float = lbfgs_steps<float>(one_case, path);
  const std::vector<double> rounding = rounding_of_losses(one_case, in_double);
  for (std::size_t t = 0; t < in_double.size(); ++t) {
    SCOPED_TRACE("step " + std::to_string(t));
    const std::vector<double> loss = numbers(expected.at("loss_returned")[t]).data;
    expect_close({in_double[t].loss}, loss, {1e-10, 1e-9}, "loss");
    expect_close(in_double[t].x, numbers(expected.at("x_after_step")[t]).data, {.relative = 1e-9}, "x");
    EXPECT_EQ(in_double[t].calls, expected.at("closure_calls_total")[t].get<std::int64_t>());
    const Tolerance rounded{.absolute = rounding[t], .relative = 1e-6};
    expect_close({in_float[t].loss}, loss, rounded, "loss in float32");
    expect_close(numbers(one_case.at("float32").at("loss_returned")[t]).data, loss, rounded, "stored loss in float32");
  }
}

void run_lbfgs_cases(const Json& one_case) {
  require_known_fields(one_case, {"name", "args", "function", "float64", "float32"});
  on_both_paths([&](Path path) { run_lbfgs(one_case, path); });
}

TEST(OptimizersReference, EveryCaseOfEveryFile) {
  run_topic("optimizers",
            {{.file = "inputs.json", .extra_fields = {"steps", "no_grad_steps_of_e", "initial", "gradients"}},
             {.file = "adadelta.json", .run = run_optimizers},
             {.file = "adagrad.json", .run = run_optimizers},
             {.file = "adam.json", .run = run_optimizers},
             {.file = "adamax.json", .run = run_optimizers},
             {.file = "adamw.json", .run = run_optimizers},
             {.file = "lamb.json", .run = run_optimizers},
             {.file = "larc.json", .run = run_optimizers},
             {.file = "lars.json", .run = run_optimizers},
             {.file = "lars_vissl.json", .run = run_optimizers},
             {.file = "lbfgs.json", .extra_fields = {"A", "b", "solution"}, .run = run_lbfgs_cases},
             {.file = "lion.json", .run = run_optimizers},
             {.file = "nadam.json", .run = run_optimizers},
             {.file = "radam.json", .run = run_optimizers},
             {.file = "rmsprop.json", .run = run_optimizers},
             {.file = "sgd.json", .run = run_optimizers},
             {.file = "clip_grad.json", .extra_fields = {"gradients_index"}, .run = run_clips}});
}

}  // namespace optimizers_test
}  // namespace lockstep::testing::reference
