// SPDX-License-Identifier: BSD-3-Clause
// Accumulation, clipping and loss scaling beside those of another library.
#include <lockstep/core/error.hpp>
#include <lockstep/models/functional.hpp>
#include <lockstep/optim/optim_wrapper.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <concepts>
#include <functional>
#include <limits>
#include <map>
#include <stdexcept>

#include "support/leaf_parameters.hpp"
#include "support/reference.hpp"

namespace lockstep::testing::reference {
namespace optim_wrapper_test {

using optim::Clip;
using optim::GradScaler;
using optim::GradScalerOptions;
using optim::OptimWrapper;
using optim::OptimWrapperDict;
using Options = OptimWrapper::WrapperOptions;

// A program that does not compile needs no error: an OptimWrapperDict has no single step or backward, and holds nothing
// but wrappers. Its update_params, which the reference refuses, is one loss for all of them (PartsTest).
template <class T>
concept Steps = requires(T all) {
  all.step();
}
|| requires(T all, at::Tensor loss) { all.backward(loss); }
|| requires(T all) { all.optim_context(); };
template <class T>
concept TakesNumbers = requires(T all) {
  all.add("a", 3);
};
static_assert(!Steps<OptimWrapperDict> && !TakesNumbers<OptimWrapperDict>);
static_assert(!std::constructible_from<OptimWrapper, int, optim::FlatParameters&, Options>);

at::Tensor tensor_of(const Json& stored, at::ScalarType type) {
  const StoredNumbers read = numbers(stored);
  return at::tensor(read.data, at::kDouble).view(read.shape).to(type);
}

std::vector<double> values_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().to(at::kDouble).contiguous().view(-1);
  return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
}

/// Parameters that start where the stored tensors are.
std::unique_ptr<LeafParameters> parameters_at(const std::vector<std::pair<std::string, Json>>& initial, DType dtype) {
  std::vector<LeafParameters::Parameter> shapes;
  for (const auto& [name, stored] : initial) shapes.push_back({name, numbers(stored).shape});
  auto parameters = std::make_unique<LeafParameters>(dtype, shapes);
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < initial.size(); ++i) {
    const at::Tensor leaf = parameters->leaf(i).detach();
    leaf.copy_(tensor_of(initial[i].second, leaf.scalar_type()));
  }
  return parameters;
}

optim::Optimizer make_optimizer(const Json& settings, optim::FlatParameters& parameters) {
  require_known_fields(settings, {"type", "lr", "momentum", "betas"});
  const std::map<std::string, std::string> rules = {{"SGD", "sgd"}, {"Adam", "adam"}, {"Adagrad", "adagrad"}};
  Section section = Section::with_defaults("optim", optim::optim_keys());
  section.set("name", rules.at(settings.at("type")), "reference");
  for (const char* key : {"lr", "momentum"}) {
    if (settings.contains(key)) section.set(key, settings.at(key).dump(), "reference");
  }
  if (settings.contains("betas")) {
    section.set("betas", settings.at("betas")[0].dump() + "," + settings.at("betas")[1].dump(), "reference");
  }
  const optim::Rule& rule = optim::find_rule(rules.at(settings.at("type")));
  std::vector<optim::ParameterInfo> infos;
  for (const optim::Segment& segment : parameters.blocks()[0].segments) infos.push_back({segment.name, 2});
  return {rule, optim::build_groups(section, rule, infos), parameters};
}

Clip read_clip(const Json& clip) {
  if (clip.is_null()) return {};
  require_known_fields(clip, {"type", "max_norm", "norm_type", "clip_value"});
  if (clip.value("type", "norm") == "value") return {.max_value = clip.at("clip_value")};
  Clip by_norm{.max_norm = clip.at("max_norm")};
  if (!clip.contains("norm_type")) return by_norm;
  const Json& p = clip.at("norm_type");
  by_norm.norm_type = p == "inf" ? std::numeric_limits<double>::infinity() : p.get<double>();
  return by_norm;
}

void expect_norm(const std::optional<double>& actual, const Json& row, const Tolerance& tolerance) {
  EXPECT_EQ(actual.has_value(), row.contains("logged_grad_norm"));
  if (!actual || !row.contains("logged_grad_norm")) return;
  const double expected = number(row.at("logged_grad_norm"));
  if (std::isfinite(expected)) {
    EXPECT_TRUE(is_close(*actual, expected, tolerance)) << *actual << " instead of " << expected;
  } else {
    EXPECT_FALSE(std::isfinite(*actual));
  }
}

// ---- optim_wrapper.json

const Json& wrapper_document() {
  static const Json document = load("optim_wrapper/optim_wrapper.json");
  return document;
}

/// Whether `begin_at` warned, once.
bool begins_with_warning(OptimWrapper& wrapper, std::int64_t done, std::int64_t total) {
  ::testing::internal::CaptureStderr();
  wrapper.begin_at(done, total);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_LE(std::count(said.begin(), said.end(), '\n'), 1) << said;
  return said.find("are lost") != std::string::npos;
}

void run_row(const Json& row, LeafParameters& parameters, OptimWrapper& wrapper, const Tolerance& tolerance) {
  require_known_fields(row, {"iteration", "inner_count_before", "should_sync", "no_sync_entered", "loss", "loss_factor",
                             "loss_factor_error", "update_error", "inner_count_after", "should_update",
                             "grad_defined_after", "weight", "bias", "logged_grad_norm"});
  const std::size_t i = row.at("iteration");
  const auto type = parameters.leaf(0).scalar_type();
  EXPECT_EQ(wrapper.micro_batches_done(), row.at("inner_count_before").get<std::int64_t>());
  EXPECT_EQ(wrapper.completes_step(), row.at("should_sync").get<bool>());
  EXPECT_EQ(!wrapper.completes_step(), row.at("no_sync_entered").get<bool>());
  const at::Tensor output =
      at::linear(tensor_of(wrapper_document().at("X")[i], type), parameters.leaf(0), parameters.leaf(1));
  const at::Tensor loss = at::mse_loss(output, tensor_of(wrapper_document().at("Y")[i], type));
  expect_close(values_of(loss), {number(row.at("loss"))}, tolerance, "loss");
  if (row.contains("loss_factor_error")) {
    EXPECT_THROW(wrapper.micro_batches_in_step(), std::logic_error);
    EXPECT_THROW(wrapper.update_params(loss), std::logic_error);
    return;
  }
  EXPECT_EQ(wrapper.micro_batches_in_step(), row.at("loss_factor").get<std::int64_t>());
  const optim::UpdateReport report = wrapper.update_params(loss);
  EXPECT_EQ(wrapper.micro_batches_done(), row.at("inner_count_after").get<std::int64_t>());
  EXPECT_EQ(report.updated, row.at("should_update").get<bool>());
  EXPECT_EQ(parameters.has_gradient(0, 0), row.at("grad_defined_after").get<bool>());
  expect_norm(report.grad_norm, row, tolerance);
  expect_close(values_of(parameters.leaf(0)), numbers(row.at("weight")).data, tolerance, "weight");
  expect_close(values_of(parameters.leaf(1)), numbers(row.at("bias")).data, tolerance, "bias");
}

void run_wrapper(const Json& one_case) {
  require_known_fields(one_case, {"accumulative_counts", "iterations", "initialize_count_status", "clip_grad",
                                  "optimizer", "dtype", "warnings", "rows"});
  const bool is_double = one_case.at("dtype") == "float64";
  const Json& all = wrapper_document();
  const auto parameters = parameters_at({{"weight", all.at("weight")}, {"bias", all.at("bias")}},
                                        is_double ? DType::float64 : DType::float32);
  OptimWrapper wrapper(
      make_optimizer(one_case.at("optimizer"), *parameters), *parameters,
      {.accumulation_steps = one_case.at("accumulative_counts"), .clip = read_clip(one_case.at("clip_grad"))});
  const Json& position = one_case.at("initialize_count_status");
  if (!position.is_null()) {
    EXPECT_EQ(begins_with_warning(wrapper, position[0], position[1]), !one_case.at("warnings").empty());
  }
  for (const Json& row : one_case.at("rows")) {
    SCOPED_TRACE("iteration " + row.at("iteration").dump());
    // Some ulp for every step before this one.
    const double steps = 1 + row.at("iteration").get<double>();
    run_row(row, *parameters, wrapper,
            is_double ? Tolerance{1e-12 * steps, 1e-12 * steps} : Tolerance{1e-7 * steps, 2e-6 * steps});
  }
}

// ---- grad_scaler.json

GradScalerOptions read_scaler(const Json& args) {
  require_known_fields(args, {"init_scale", "growth_factor", "backoff_factor", "growth_interval"});
  GradScalerOptions options;
  options.init_scale = args.value("init_scale", options.init_scale);
  options.growth_factor = args.value("growth_factor", options.growth_factor);
  options.backoff_factor = args.value("backoff_factor", options.backoff_factor);
  options.growth_interval = args.value("growth_interval", options.growth_interval);
  return options;
}

/// The float32 value: stored decimals give the value back only then.
double narrowed(const Json& scale) { return static_cast<double>(static_cast<float>(number(scale))); }

void expect_state(const GradScaler& scaler, const Json& stored) {
  require_known_fields(stored, {"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"});
  EXPECT_EQ(scaler.scale(), narrowed(stored.at("scale")));
  EXPECT_EQ(scaler.options().growth_factor, number(stored.at("growth_factor")));
  EXPECT_EQ(scaler.options().backoff_factor, number(stored.at("backoff_factor")));
  EXPECT_EQ(scaler.options().growth_interval, stored.at("growth_interval").get<std::int64_t>());
  EXPECT_EQ(scaler.state().growth_tracker, stored.at("_growth_tracker").get<std::int64_t>());
}

void run_scaler(const Json& one_case) {
  require_known_fields(one_case, {"args", "found_inf", "after_update", "state_dict"});
  GradScaler scaler(read_scaler(one_case.at("args")));
  const Json& found_inf = one_case.at("found_inf");
  if (found_inf.size() != one_case.at("after_update").size()) throw std::runtime_error("another number of steps");
  std::int64_t skipped = 0;
  for (std::size_t t = 0; t < found_inf.size(); ++t) {
    const Json& after = one_case.at("after_update")[t];
    require_known_fields(after, {"scale", "growth_tracker", "stepped"});
    scaler.update(!found_inf[t].get<bool>());
    skipped += after.at("stepped").get<bool>() ? 0 : 1;
    EXPECT_EQ(scaler.scale(), narrowed(after.at("scale"))) << "step " << t;
    EXPECT_EQ(scaler.state().growth_tracker, after.at("growth_tracker").get<std::int64_t>()) << "step " << t;
    EXPECT_EQ(scaler.state().skipped_steps, skipped) << "step " << t;
  }
  expect_state(scaler, one_case.at("state_dict"));
}

// ---- amp_optim_wrapper.json

const Json& amp_document() {
  static const Json document = load("optim_wrapper/amp_optim_wrapper.json");
  return document;
}

GradScalerOptions read_loss_scale(const Json& loss_scale) {
  if (loss_scale.is_object()) return read_scaler(loss_scale);
  return GradScalerOptions::parse(loss_scale.is_string() ? loss_scale.get<std::string>() : loss_scale.dump(),
                                  "reference");
}

at::Tensor run_amp_forward(const LeafParameters& parameters, const at::Tensor& input) {
  const models::Autocast autocast(at::kCPU, at::kBFloat16);
  const at::Tensor hidden = at::tanh(at::linear(input, parameters.leaf(0), parameters.leaf(1)));
  return at::linear(hidden, parameters.leaf(2), parameters.leaf(3));
}

/// bfloat16 rounds 2^-8 of a number; sums may be formed in another order. Of what has changed since the beginning.
void expect_near(const at::Tensor& actual, const Json& expected, const at::Tensor& initial) {
  const at::Tensor stored = tensor_of(expected, at::kDouble);
  const double change = (stored - initial).abs().max().item<double>();
  expect_close(values_of(actual), values_of(stored), {.absolute = 1e-7 + change / 128}, "parameter");
}

void run_amp_row(const Json& row, LeafParameters& parameters, OptimWrapper& wrapper, bool is_infinite) {
  require_known_fields(row, {"iteration", "loss", "output_dtype", "scale_before", "scale_after", "growth_tracker",
                             "updated", "inner_count", "params", "logged_grad_norm"});
  const std::size_t i = row.at("iteration");
  const at::Tensor output = run_amp_forward(parameters, tensor_of(wrapper_document().at("X")[i], at::kFloat));
  EXPECT_EQ(output.scalar_type(), at::kBFloat16);
  EXPECT_EQ(row.at("output_dtype"), "bfloat16");
  at::Tensor loss = at::mse_loss(output.to(at::kFloat), tensor_of(wrapper_document().at("Y")[i], at::kFloat));
  if (is_infinite) loss = loss * std::numeric_limits<double>::infinity();
  expect_close(values_of(loss), {number(row.at("loss"))}, {.relative = 1.0 / 128}, "loss");
  EXPECT_EQ(wrapper.scaler()->scale(), number(row.at("scale_before")));
  const optim::UpdateReport report = wrapper.update_params(loss);
  EXPECT_EQ(report.updated, row.at("updated").get<bool>());
  EXPECT_EQ(wrapper.scaler()->scale(), number(row.at("scale_after")));
  EXPECT_EQ(wrapper.scaler()->state().growth_tracker, row.at("growth_tracker").get<std::int64_t>());
  EXPECT_EQ(wrapper.micro_batches_done(), row.at("inner_count").get<std::int64_t>());
  expect_norm(report.grad_norm, row, {.relative = 1.0 / 64});
  const Json& initial = amp_document().at("initial");
  for (std::size_t p = 0; p < initial.size(); ++p) {
    expect_near(parameters.leaf(p), row.at("params")[p], tensor_of(initial[p], at::kDouble));
  }
}

void run_amp(const Json& one_case) {
  require_known_fields(one_case, {"loss_scale", "dtype", "accumulative_counts", "clip_grad",
                                  "loss_multiplied_by_inf_on", "rows", "state_dict_loss_scaler"});
  if (one_case.at("dtype") != "bfloat16") throw std::runtime_error("no test knows the dtype");
  std::vector<std::pair<std::string, Json>> initial;
  for (const Json& stored : amp_document().at("initial")) {
    initial.emplace_back("p" + std::to_string(initial.size()), stored);
  }
  const auto parameters = parameters_at(initial, DType::float32);
  OptimWrapper wrapper(make_optimizer(amp_document().at("optimizer"), *parameters), *parameters,
                       {.accumulation_steps = one_case.at("accumulative_counts"),
                        .clip = read_clip(one_case.at("clip_grad")),
                        .scaler = read_loss_scale(one_case.at("loss_scale"))});
  wrapper.begin_at(0, static_cast<std::int64_t>(one_case.at("rows").size()));
  const auto infinite = one_case.at("loss_multiplied_by_inf_on").get<std::vector<int>>();
  for (const Json& row : one_case.at("rows")) {
    SCOPED_TRACE("iteration " + row.at("iteration").dump());
    const bool is_infinite =
        std::find(infinite.begin(), infinite.end(), row.at("iteration").get<int>()) != infinite.end();
    run_amp_row(row, *parameters, wrapper, is_infinite);
  }
  expect_state(*wrapper.scaler(), one_case.at("state_dict_loss_scaler"));
}

TEST(OptimWrapperReference, EveryCaseOfEveryFile) {
  run_topic("optim_wrapper", {{.file = "grad_scaler.json", .run = run_scaler},
                              {.file = "optim_wrapper.json",
                               .extra_fields = {"weight", "bias", "X", "Y", "argument_errors", "batch_norm_warning",
                                                "clip_golden", "get_momentum", "state_dict_keys_one_group"},
                               .run = run_wrapper},
                              {.file = "amp_optim_wrapper.json",
                               .extra_fields = {"initial", "optimizer", "argument_errors", "autocast_on_cpu"},
                               .run = run_amp}});
}

// ---- what the files hold beside their cases

bool has_files() { return std::filesystem::is_directory(root() / "optim_wrapper"); }

/// Does what corresponds to an argument there; throws if it is refused.
using Attempts = std::map<std::string, std::function<void()>>;

void expect_refusals(const Json& rows, const Attempts& attempts, const std::vector<std::string>& accepted_here) {
  for (const Json& row : rows) {
    const std::string what = row.at("what");
    SCOPED_TRACE(what);
    const auto attempt = attempts.find(what);
    if (attempt == attempts.end()) {
      ADD_FAILURE() << "no test knows it";
      continue;
    }
    const bool is_fixed = std::find(accepted_here.begin(), accepted_here.end(), what) != accepted_here.end();
    if (row.at("accepted").get<bool>() || is_fixed) {
      EXPECT_NO_THROW(attempt->second());
    } else {
      EXPECT_ANY_THROW(attempt->second());
    }
  }
}

TEST(OptimWrapperReference, ArgumentsAreRefused) {
  if (!has_files()) GTEST_SKIP() << "no reference data for optim_wrapper in " << root();
  LeafParameters parameters(DType::float32, {{"w", {2}}});
  const auto accumulate = [&](std::int64_t steps) {
    return [&parameters, steps] {
      OptimWrapper(make_optimizer(Json{{"type", "SGD"}, {"lr", 1}}, parameters), parameters,
                   {.accumulation_steps = steps});
    };
  };
  const auto does_not_compile = [] { throw std::logic_error("see the static_asserts above"); };
  expect_refusals(wrapper_document().at("argument_errors"),
                  {{"accumulative_counts=0", accumulate(0)},
                   {"accumulative_counts=-1", accumulate(-1)},
                   {"clip_grad={}", does_not_compile},
                   {"clip_grad=dict(type='norm')", does_not_compile},
                   {"clip_grad=dict(type='foo', a=1)", does_not_compile},
                   {"clip_grad='norm'", does_not_compile},
                   {"optimizer is not an Optimizer", does_not_compile},
                   {"OptimWrapperDict.update_params", does_not_compile},
                   {"OptimWrapperDict.step", does_not_compile},
                   {"OptimWrapperDict.backward", does_not_compile},
                   {"OptimWrapperDict(a=3)", does_not_compile},
                   {"OptimWrapperDict['b']", [] { OptimWrapperDict().at("b"); }},
                   {"OptimWrapperDict.optim_context", does_not_compile}},
                  {});
  const auto scale = [](const Json& given) { return [given] { GradScaler{read_loss_scale(given)}; }; };
  const auto dtype = [](at::ScalarType type) { return [type] { models::Autocast(at::kCPU, type); }; };
  const auto no_cast = [] {};  // train.precision=fp64: parameters of that type
  expect_refusals(
      amp_document().at("argument_errors"),
      {{"loss_scale=512 (integer)", scale(512)},
       {"loss_scale=512.0", scale(512.0)},
       {"loss_scale='static'", scale("static")},
       {"dtype='int8'", dtype(at::kChar)},
       {"dtype='float64'", no_cast},
       {"dtype=3", dtype(at::kInt)},
       {"loss_scale=dict(init_scale=4.0, growth_factor=3.0)", scale({{"init_scale", 4.0}, {"growth_factor", 3.0}})},
       {"loss_scale=dict(growth_factor=1.0)", scale({{"growth_factor", 1.0}})},
       {"loss_scale=dict(backoff_factor=1.0)", scale({{"backoff_factor", 1.0}})}},
      {"loss_scale=512 (integer)"});
}

TEST(OptimWrapperReference, AutocastOnTheCpu) {
  if (!has_files()) GTEST_SKIP() << "no reference data for optim_wrapper in " << root();
  const auto product_type = [](std::optional<at::ScalarType> type) {
    std::optional<models::Autocast> autocast;
    if (type) autocast.emplace(at::kCPU, *type);
    return std::string(at::toString(at::matmul(at::ones({2, 2}), at::ones({2, 2})).scalar_type()));
  };
  const std::map<std::string, std::optional<at::ScalarType>> types = {{"cpu, defaults", at::kBFloat16},
                                                                      {"cpu, bfloat16", at::kBFloat16},
                                                                      {"cpu, float16", at::kHalf},
                                                                      {"cpu, enabled=false", std::nullopt},
                                                                      {"cpu, float32", at::kFloat}};
  const std::map<std::string, std::string> names = {{"bfloat16", "BFloat16"}, {"float32", "Float"}};
  for (const Json& row : amp_document().at("autocast_on_cpu")) {
    const std::string what = row.at("what");
    SCOPED_TRACE(what);
    if (!types.contains(what)) {
      ADD_FAILURE() << "no test knows it";
    } else if (row.at("accepted").get<bool>()) {
      EXPECT_EQ(product_type(types.at(what)), names.at(row.at("matmul_dtype")));
    } else if (what == "cpu, float16") {
      EXPECT_EQ(product_type(types.at(what)), "Half");  // which the other library has no kernels for, or had not
    } else {
      EXPECT_ANY_THROW(product_type(types.at(what)));
    }
  }
}

TEST(OptimWrapperReference, ClippingNumbers) {
  if (!has_files()) GTEST_SKIP() << "no reference data for optim_wrapper in " << root();
  const Json& golden = wrapper_document().at("clip_golden");
  require_known_fields(golden, {"grad", "max_norm", "logged_grad_norm", "grad_after_clip", "param_after_sgd_lr_0.1"});
  for (const auto& [lr, sign, field] :
       {std::tuple{"1", -1.0, "grad_after_clip"}, std::tuple{"0.1", 1.0, "param_after_sgd_lr_0.1"}}) {
    const auto size = static_cast<std::int64_t>(golden.at("grad").size());
    LeafParameters parameters(DType::float32, {{"w", {size}}});
    OptimWrapper wrapper(make_optimizer(Json{{"type", "SGD"}, {"lr", Json::parse(lr)}}, parameters), parameters,
                         {.clip = {.max_norm = number(golden.at("max_norm"))}});
    const at::Tensor gradient = at::tensor(golden.at("grad").get<std::vector<float>>());
    const optim::UpdateReport report = wrapper.update_params((parameters.leaf(0) * gradient).sum());
    EXPECT_EQ(report.grad_norm, number(golden.at("logged_grad_norm")));
    expect_close(values_of(parameters.leaf(0) * sign), numbers(golden.at(field)).data, {.relative = 2e-6}, field);
  }
}

TEST(OptimWrapperReference, Momentum) {
  if (!has_files()) GTEST_SKIP() << "no reference data for optim_wrapper in " << root();
  const std::map<std::string, Json> optimizers = {
      {"sgd", {{"type", "SGD"}, {"lr", 0.1}, {"momentum", 0.9}}},
      {"adam", {{"type", "Adam"}, {"lr", 0.1}, {"betas", {0.8, 0.99}}}},
      {"adagrad", {{"type", "Adagrad"}, {"lr", 0.1}}},
  };
  for (const auto& [name, expected] : wrapper_document().at("get_momentum").items()) {
    require_known_fields(expected, {"momentum"});
    LeafParameters parameters(DType::float32, {{"w", {2}}});
    const OptimWrapper wrapper(make_optimizer(optimizers.at(name), parameters), parameters, {});
    EXPECT_EQ(wrapper.values("momentum"), expected.at("momentum").get<std::vector<double>>()) << name;
    EXPECT_EQ(wrapper.values("lr"), std::vector<double>{0.1}) << name;
    EXPECT_EQ(wrapper.values("base_lr"), std::vector<double>{0.1}) << name;
  }
}

// One group: nothing stands beside the optimizer's own state, whose groups and arrays a checkpoint has by name.
TEST(OptimWrapperReference, StateOfOneGroup) {
  if (!has_files()) GTEST_SKIP() << "no reference data for optim_wrapper in " << root();
  EXPECT_EQ(wrapper_document().at("state_dict_keys_one_group"), Json({"param_groups", "state"}));
  LeafParameters parameters(DType::float32, {{"w", {2}}});
  const OptimWrapper wrapper(make_optimizer(Json{{"type", "SGD"}, {"lr", 1}, {"momentum", 0.9}}, parameters),
                             parameters, {});
  EXPECT_EQ(wrapper.optimizer().groups().size(), 1U);
  EXPECT_EQ(wrapper.optimizer().state_names(), std::vector<std::string>{"momentum_buffer"});
  EXPECT_EQ(wrapper.scaler(), nullptr);
}

}  // namespace optim_wrapper_test
}  // namespace lockstep::testing::reference
