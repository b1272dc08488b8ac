// SPDX-License-Identifier: BSD-3-Clause
// Updates by whole tensors beside the loops over pieces: on a GPU the former do what the latter do on a CPU.
#include <lockstep/core/error.hpp>
#include <lockstep/optim/optim_wrapper.hpp>
#include <lockstep/optim/tensor_update.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>

#include "make_optimizer.hpp"
#include "optim/update/live_numbers.hpp"
#include "optim/update/tensor_parameters.hpp"
#include "optim/update/tensor_stack.hpp"
#include "support/device_parameters_double.hpp"
#include "support/recorded_ops.hpp"
#include "support/sentence.hpp"

namespace lockstep::optim {
namespace tensor_update_test {

using DeviceParameters = testing::DeviceParametersDouble;

const std::vector<testing::FlatParametersDouble::Parameter> kShapes = {{"w", {50, 100}}, {"b", {7}}, {"unused", {3}}};

template <class T>
std::vector<T> numbers(std::size_t count, int seed) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<T>(std::sin(static_cast<double>(i * 3 + 1) * 0.37 + seed));
  }
  return values;
}

template <class T>
void set_all(testing::FlatParametersDouble& parameters) {
  for (const auto& [name, shape] : kShapes) {
    parameters.set_values<T>(name, numbers<T>(parameters.values<T>(name).size(), 11));
  }
}

/// The second parameter has no gradient in the first step, the third never has.
template <class T>
void set_gradients(testing::FlatParametersDouble& parameters, int step) {
  parameters.drop_gradients();
  parameters.set_gradient<T>("w", numbers<T>(5000, step));
  if (step > 0) parameters.set_gradient<T>("b", numbers<T>(7, 100 + step));
}

template <class T>
void expect_near(testing::FlatParametersDouble& actual, testing::FlatParametersDouble& expected, double tolerance) {
  for (const auto& [name, shape] : kShapes) {
    const auto a = actual.values<T>(name);
    const auto e = expected.values<T>(name);
    double largest = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(a[i]) - static_cast<double>(e[i])));
    }
    EXPECT_LE(largest, tolerance) << name;
  }
}

/// The rule as GPUs use it and, if LibTorch has a kernel for it, the rule without this kernel: its template.
std::vector<Rule> forms_of(const OptionValues& settings) {
  std::vector<Rule> forms = {find_rule(section_of(settings).text("name"))};
  Rule by_rows = forms[0];
  auto* const elements = std::get_if<ElementRule>(&by_rows.kind);
  if (elements == nullptr || elements->fused == nullptr) return forms;
  elements->fused = nullptr;
  forms.push_back(by_rows);
  return forms;
}

class TensorUpdateTest : public ::testing::TestWithParam<OptionValues> {};

// The kernels round in another order.
TEST_P(TensorUpdateTest, DoesWhatTheRuleDoes) {
  const auto compare = [](const Rule& rule, auto zero, double tolerance) {
    using T = decltype(zero);
    const DType dtype = sizeof(T) == 4 ? DType::float32 : DType::float64;
    testing::FlatParametersDouble by_pieces(dtype, kShapes);
    DeviceParameters by_tensors(dtype, kShapes);
    set_all<T>(by_pieces);
    set_all<T>(by_tensors);
    Optimizer pieces = make_optimizer(GetParam(), by_pieces);
    Optimizer tensors = make_optimizer(rule, GetParam(), by_tensors);
    const auto writes_before = by_tensors.writes;
    for (int step = 0; step < 6; ++step) {
      set_gradients<T>(by_pieces, step);
      set_gradients<T>(by_tensors, step);
      pieces.step();
      tensors.step_tensors({});
    }
    expect_near<T>(by_tensors, by_pieces, tolerance);
    const auto expected_steps =
        rule.counts_every_step ? std::vector<std::int64_t>{6, 6, 6} : std::vector<std::int64_t>{6, 5, 0};
    EXPECT_EQ(std::vector(tensors.steps(0).begin(), tensors.steps(0).end()), expected_steps);
    const auto first = numbers<T>(3, 11);
    EXPECT_TRUE(std::equal(first.begin(), first.end(), by_tensors.values<T>("unused").begin()));
    EXPECT_EQ(by_tensors.writes, 6 + writes_before);
  };
  for (const Rule& rule : forms_of(GetParam())) {
    compare(rule, 0.0, 1e-14);
    compare(rule, 0.0F, 1e-6);
  }
}

// A step that a loss scale found to be not finite.
TEST_P(TensorUpdateTest, AVoidStepChangesNothing) {
  DeviceParameters parameters(DType::float32, kShapes);
  set_all<float>(parameters);
  Optimizer optimizer = make_optimizer(GetParam(), parameters);
  const auto state = [&] {
    const auto weights = parameters.values<float>("w");
    std::vector<float> values(weights.begin(), weights.end());
    for (std::size_t slot = 0; slot < optimizer.state_names().size(); ++slot) {
      const auto array = optimizer.state_of(0, 0, slot);
      if (!array) continue;
      std::size_t count = 1;
      for (const std::int64_t size : array->shape) count *= static_cast<std::size_t>(size);
      const auto* const first = reinterpret_cast<const float*>(array->values);
      values.insert(values.end(), first, first + count);
    }
    return values;
  };
  set_gradients<float>(parameters, 1);
  optimizer.step_tensors({});
  const std::vector<float> before = state();
  set_gradients<float>(parameters, 2);
  TensorChange change;
  change.is_void = at::ones({}, at::kFloat);
  optimizer.step_tensors(change);
  optimizer.uncount_step();
  EXPECT_EQ(state(), before);
  EXPECT_EQ(optimizer.steps(0)[0], 1);
  change.is_void = at::zeros({}, at::kFloat);
  optimizer.step_tensors(change);
  EXPECT_NE(state(), before);
}

/// Steps of an optimizer of its own, with another learning rate in each.
class Steps {
 public:
  Steps(const Rule& rule, const OptionValues& settings, DType dtype)
      : parameters_(dtype, kShapes), optimizer_([&] {
          dtype == DType::float32 ? set_all<float>(parameters_) : set_all<double>(parameters_);
          return make_optimizer(rule, settings, parameters_);
        }()) {}

  /// @param body  the update
  void run(int step, bool can_be_void, const std::function<void(Optimizer&, const TensorChange&)>& body) {
    const bool is_float = parameters_.blocks()[0].dtype == DType::float32;
    is_float ? bring_gradients<float>(step) : bring_gradients<double>(step);
    for (ParamGroup& group : optimizer_.groups()) group.options["lr"] = group.base_lr * (1 + 0.1 * step);
    TensorChange change;
    if (can_be_void) change.is_void = at::zeros({}, at::kFloat);
    body(optimizer_, change);
  }

  std::vector<std::byte> values() {
    const FlatBlock& block = parameters_.blocks()[0];
    const auto bytes = static_cast<std::size_t>(block.count) * size_of(block.dtype);
    std::vector<std::byte> all(block.parameters, block.parameters + bytes);
    for (std::size_t slot = 0; slot < optimizer_.state_names().size(); ++slot) {
      const auto state = optimizer_.state(0, slot);
      all.insert(all.end(), state.begin(), state.end());
    }
    return all;
  }
  const Optimizer& optimizer() const { return optimizer_; }

 private:
  /// The case after the first step into the same memory, as the work of a graph requires.
  template <class T>
  void bring_gradients(int step) {
    if (step == 1) return set_gradients<T>(parameters_, step);
    const auto bring = [&](std::size_t segment, const std::vector<T>& values) {
      auto* const target = const_cast<std::byte*>(parameters_.gradient(0, segment));
      std::memcpy(target, values.data(), values.size() * sizeof(T));
    };
    bring(0, numbers<T>(5000, step));
    bring(1, numbers<T>(7, 100 + step));
  }

  DeviceParameters parameters_;
  Optimizer optimizer_;
};

// The recorded operations read what changes from memory: on a CPU the bits are those of steps that are not recorded.
void compare_with_recorded_steps(const Rule& rule, const OptionValues& settings, DType dtype, bool can_be_void) {
  Steps plain(rule, settings, dtype);
  Steps replayed(rule, settings, dtype);
  std::unique_ptr<LiveNumbers> live;
  testing::RecordedOps ops;
  int recordings = 0;
  const auto record = [&](Optimizer& optimizer, const TensorChange& change) {
    ++recordings;
    live = std::make_unique<LiveNumbers>(at::kCPU);
    ops = testing::recorded([&] { optimizer.step_tensors(change, live.get()); });
  };
  for (int step = 1; step <= 9; ++step) {
    const auto step_plainly = [](Optimizer& optimizer, const TensorChange& change) { optimizer.step_tensors(change); };
    plain.run(step, can_be_void, step_plainly);
    if (step <= 2) {
      replayed.run(step, can_be_void, step_plainly);
      continue;
    }
    replayed.run(step, can_be_void, [&](Optimizer& optimizer, const TensorChange& change) {
      if (!live) return record(optimizer, change);
      const auto before = optimizer.all_steps();
      optimizer.count_recorded_step();
      if (!live->refresh()) {  // other operations from now on
        optimizer.set_all_steps(before);
        return record(optimizer, change);
      }
      for (const auto& operation : ops) operation();
    });
    EXPECT_EQ(replayed.values(), plain.values()) << step;
    EXPECT_EQ(replayed.optimizer().all_steps(), plain.optimizer().all_steps());
  }
  EXPECT_LE(recordings, 3);
}

TEST_P(TensorUpdateTest, ARecordedStepComputesTheSameWithOtherNumbers) {
  const bool has_loops = Section(section_of(GetParam())).text("name") == "adafactor";  // unless it can be void
  for (const Rule& rule : forms_of(GetParam())) {
    for (const DType dtype : {DType::float32, DType::float64}) {
      for (const bool can_be_void : {false, true}) {
        if (!has_loops || can_be_void) compare_with_recorded_steps(rule, GetParam(), dtype, can_be_void);
      }
    }
  }
}

TEST_P(TensorUpdateTest, AnotherOptionThanLrRequiresAnotherRecording) {
  Steps steps(find_rule(section_of(GetParam()).text("name")), GetParam(), DType::float32);
  LiveNumbers live(at::kCPU);
  steps.run(1, false, [&](Optimizer& optimizer, const TensorChange& change) {
    optimizer.step_tensors(change);
    optimizer.step_tensors(change, &live);
    EXPECT_TRUE(live.refresh());
    optimizer.groups()[0].options["weight_decay"] += 0.5;
    EXPECT_FALSE(live.refresh());
  });
}

INSTANTIATE_TEST_SUITE_P(
    Rules, TensorUpdateTest,
    ::testing::Values(
        OptionValues{{"lr", "0.1"}}, OptionValues{{"lr", "0.1"}, {"weight_decay", "0.01"}, {"maximize", "true"}},
        OptionValues{{"lr", "0.1"}, {"momentum", "0.9"}},
        OptionValues{{"lr", "0.1"}, {"momentum", "0.9"}, {"dampening", "0.25"}, {"weight_decay", "0.1"}},
        OptionValues{{"lr", "0.1"}, {"momentum", "0.9"}, {"nesterov", "true"}},
        OptionValues{{"name", "adam"}, {"lr", "0.01"}, {"weight_decay", "0.1"}, {"maximize", "true"}},
        OptionValues{{"name", "adam"}, {"lr", "0.01"}, {"amsgrad", "true"}},
        OptionValues{{"name", "adadelta"}, {"lr", "1"}, {"weight_decay", "0.1"}, {"maximize", "true"}},
        OptionValues{{"name", "adagrad"}, {"lr", "0.1"}, {"lr_decay", "0.1"}, {"weight_decay", "0.1"}},
        OptionValues{{"name", "adagrad"}, {"lr", "0.1"}, {"initial_accumulator_value", "0.5"}},
        OptionValues{{"name", "adamax"}, {"lr", "0.01"}, {"weight_decay", "0.1"}, {"maximize", "true"}},
        OptionValues{{"name", "asgd"}, {"lr", "0.1"}, {"lambd", "0.1"}, {"t0", "2"}, {"weight_decay", "0.1"}},
        OptionValues{{"name", "lion"}, {"lr", "0.01"}, {"weight_decay", "0.1"}, {"maximize", "true"}},
        OptionValues{{"name", "lion"}, {"lr", "0.01"}, {"caution", "true"}},
        OptionValues{{"name", "nadam"}, {"lr", "0.01"}, {"weight_decay", "0.1"}, {"maximize", "true"}},
        OptionValues{{"name", "nadam"}, {"lr", "0.01"}, {"weight_decay", "0.1"}, {"decoupled_weight_decay", "true"}},
        OptionValues{{"name", "radam"}, {"lr", "0.01"}, {"weight_decay", "0.1"}, {"betas", "0.9, 0.5"}},
        OptionValues{{"name", "radam"}, {"lr", "0.01"}, {"weight_decay", "0.1"}, {"decoupled_weight_decay", "true"}},
        OptionValues{{"name", "rmsprop"}, {"lr", "0.01"}, {"weight_decay", "0.1"}, {"maximize", "true"}},
        OptionValues{{"name", "rmsprop"}, {"lr", "0.01"}, {"centered", "true"}, {"momentum", "0.9"}},
        OptionValues{{"name", "rmsprop"}, {"lr", "0.01"}, {"momentum", "0.9"}},
        OptionValues{{"name", "rmsprop"}, {"lr", "0.01"}, {"centered", "true"}},
        OptionValues{{"name", "rprop"}, {"lr", "0.01"}, {"maximize", "true"}},
        OptionValues{{"name", "lars"}, {"lr", "0.1"}, {"momentum", "0.9"}, {"weight_decay", "0.1"}},
        OptionValues{{"name", "lars"},
                     {"lr", "0.1"},
                     {"weight_decay", "0.1"},
                     {"joint_norm", "true"},
                     {"adapt_vectors", "false"}},
        OptionValues{{"name", "lars"}, {"lr", "0.1"}, {"momentum", "0.9"}},
        OptionValues{{"name", "larc"},
                     {"lr", "0.1"},
                     {"momentum", "0.9"},
                     {"nesterov", "true"},
                     {"weight_decay", "0.1"},
                     {"trust_clip", "true"}},
        OptionValues{{"name", "lamb"}, {"lr", "0.01"}, {"weight_decay", "0.1"}, {"maximize", "true"}},
        OptionValues{{"name", "lamb"},
                     {"lr", "0.01"},
                     {"weight_decay", "0.1"},
                     {"decoupled_weight_decay", "true"},
                     {"trust_clip", "true"},
                     {"max_grad_norm", "0"}},
        OptionValues{{"name", "lamb"},
                     {"lr", "0.01"},
                     {"weight_decay", "0.1"},
                     {"max_grad_norm", "0.5"},
                     {"grad_averaging", "false"},
                     {"bias_correction", "false"}},
        OptionValues{{"name", "lamb"}, {"lr", "0.01"}, {"decoupled_weight_decay", "true"}},
        OptionValues{{"name", "adafactor"}, {"lr", "0.01"}, {"weight_decay", "0.1"}},
        OptionValues{{"name", "muon"}, {"lr", "0.01"}, {"weight_decay", "0.1"}, {"maximize", "true"}},
        OptionValues{{"name", "adamw"}, {"lr", "0.01"}},
        OptionValues{{"name", "adamw"}, {"lr", "0.01"}, {"weight_decay", "0.1"}, {"maximize", "true"}},
        OptionValues{{"name", "adamw"}, {"lr", "0.01"}, {"amsgrad", "true"}, {"no_decay", "norms_biases"}}));

// Loops take what lies row by row; LibTorch what lies otherwise.
TEST(TensorRuleTest, AdafactorDoesTheSameToEveryLayout) {
  const Section optim = section_of({{"name", "adafactor"}, {"weight_decay", "0.1"}, {"maximize", "true"}});
  const Rule& rule = find_rule("adafactor");
  Options options = rule.read(optim);
  options.insert({{"lr", 0.02}, {"weight_decay", 0.1}, {"maximize", 1}});
  const at::Tensor initial = at::arange(2 * 5 * 37, at::kDouble).mul(0.37).sin().view({2, 5, 37});
  std::vector<at::Tensor> results;
  for (const bool is_by_rows : {true, false}) {
    const auto laid_out = [&](const at::Tensor& tensor) {
      return is_by_rows ? tensor.clone() : tensor.transpose(1, 2).contiguous().transpose(1, 2);
    };
    TensorUpdate update{.parameters = {laid_out(initial)},
                        .gradients = {},
                        .states = {{at::zeros({2, 5, 1}, at::kDouble)}, {at::zeros({2, 1, 37}, at::kDouble)}, {{}}},
                        .options = &options,
                        .is_void = {}};
    for (update.step = 1; update.step <= 3; ++update.step) {
      update.gradients = {laid_out(initial.mul(static_cast<double>(update.step)).cos())};
      std::get<WholeRule>(rule.kind).update(update);
    }
    results.push_back(update.parameters[0].contiguous());
  }
  EXPECT_GT((results[0] - initial).abs().max().item<double>(), 1e-3);
  EXPECT_LE((results[0] - results[1]).abs().max().item<double>(), 1e-14);
}

TEST(TensorRuleTest, OthersAreRefusedOnAGpu) {
  DeviceParameters parameters(DType::float32, kShapes);
  const std::vector<ParamGroup> groups = make_optimizer({}, parameters).groups();
  Rule loops_alone = find_rule("sgd");
  loops_alone.name = "mine";
  std::get<ElementRule>(loops_alone.kind).fused = nullptr;
  std::get<ElementRule>(loops_alone.kind).rows = nullptr;
  EXPECT_EQ(testing::sentence_of<ConfigError>([&] { Optimizer(loops_alone, groups, parameters); }),
            "optim.name: mine does not support GPUs; use another optimizer or run.device=cpu");
}

TEST(TensorNormTest, IsTheNormOfAllGradients) {
  DeviceParameters parameters(DType::float64, kShapes);
  parameters.set_gradient<double>("w", std::vector<double>(5000, 0));
  EXPECT_EQ(gradient_norm_tensor(parameters, 2).item<double>(), 0);
  std::vector<double> w(5000);
  w[17] = 3;
  w[4999] = -4;
  parameters.set_gradient<double>("w", w);
  parameters.set_gradient<double>("b", {0, 12, 0, 0, 0, 0, 0});
  EXPECT_DOUBLE_EQ(gradient_norm_tensor(parameters, 2).item<double>(), 13);
  EXPECT_DOUBLE_EQ(gradient_norm_tensor(parameters, 1).item<double>(), 19);
  EXPECT_DOUBLE_EQ(gradient_norm_tensor(parameters, 3).item<double>(), std::cbrt(27 + 64 + 1728));
  EXPECT_EQ(gradient_norm_tensor(parameters, std::numeric_limits<double>::infinity()).item<double>(), 12);
}

/// One step of a wrapper whose loss adds nothing to the gradients that were set.
UpdateReport wrapped_step(OptimWrapper& wrapper) {
  return wrapper.update_params(torch::zeros({}, at::kDouble).requires_grad_());
}

/// This rank owns a part of "w" and nothing of "b"; another rank brings what the sums are told here.
class DividedParameters : public DeviceParameters {
 public:
  using DeviceParameters::DeviceParameters;
  bool is_divided() const noexcept override { return true; }
  void sum_over_ranks(const at::Tensor& values) override { values.add_(others); }
  void maximum_over_ranks(const at::Tensor& values) override { values.clamp_min_(others); }

  double others = 0;
};

TEST(TensorNormTest, IsOverWhatAllRanksOwn) {
  DividedParameters parameters(DType::float64, {{"w", {2}}, {"b", {1}}});
  parameters.own("b", 0, 0);
  parameters.set_gradient<double>("w", {3, 0});
  parameters.set_gradient<double>("b", {100});
  parameters.others = 16;
  EXPECT_DOUBLE_EQ(gradient_norm_tensor(parameters, 2).item<double>(), 5);
  EXPECT_DOUBLE_EQ(gradient_norm_tensor(parameters, 1).item<double>(), 19);
  EXPECT_DOUBLE_EQ(gradient_norm_tensor(parameters, std::numeric_limits<double>::infinity()).item<double>(), 16);
  parameters.others = 0;
  parameters.set_gradient<double>("w", {std::nan(""), 0});
  EXPECT_FALSE(std::isfinite(gradient_norm_tensor(parameters, 2).item<double>()));
  EXPECT_FALSE(std::isfinite(gradient_norm_tensor(parameters, std::numeric_limits<double>::infinity()).item<double>()));
}

TEST(TensorLossScaleTest, AFaultOnAnotherRankSkipsHere) {
  DividedParameters parameters(DType::float32, {{"w", {2}}, {"b", {1}}});
  parameters.set_gradient<float>("w", {3, 0});
  EXPECT_EQ(unscale_gradients(parameters, 2).item<float>(), 0);
  EXPECT_EQ(reinterpret_cast<const float*>(parameters.gradient(0, 0))[0], 1.5F);
  parameters.others = 1;
  EXPECT_EQ(unscale_gradients(parameters, 2).item<float>(), 1);
}

TEST(TensorClipTest, ScalesAndClamps) {
  DeviceParameters parameters(DType::float64, {{"w", {2}}});
  OptimWrapper wrapper(make_optimizer({{"lr", "1"}}, parameters), parameters, {.clip = {.max_norm = 2.5}});
  parameters.set_gradient<double>("w", {3, -4});
  const UpdateReport report = wrapped_step(wrapper);
  EXPECT_TRUE(report.updated);
  EXPECT_EQ(report.grad_norm, 5);
  EXPECT_NEAR(parameters.values<double>("w")[0], -1.5, 1e-6);
  EXPECT_NEAR(parameters.values<double>("w")[1], 2, 1e-6);
  OptimWrapper clamping(make_optimizer({{"lr", "1"}}, parameters), parameters, {.clip = {.max_value = 0.5}});
  parameters.set_values<double>("w", {0, 0});
  parameters.set_gradient<double>("w", {0.25, -4});
  EXPECT_FALSE(wrapped_step(clamping).grad_norm);
  EXPECT_EQ(parameters.values<double>("w")[0], -0.25);
  EXPECT_EQ(parameters.values<double>("w")[1], 0.5);
}

TEST(TensorClipTest, ANormThatIsNotFiniteChangesNothing) {
  for (const double bad : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    DeviceParameters parameters(DType::float64, {{"w", {2}}});
    parameters.set_values<double>("w", {5, 6});
    OptionValues settings = {{"name", "adamw"}, {"lr", "1"}};
    OptimWrapper wrapper(make_optimizer(settings, parameters), parameters, {.clip = {.max_norm = 2.5}});
    parameters.set_gradient<double>("w", {bad, 1});
    const UpdateReport report = wrapped_step(wrapper);
    EXPECT_FALSE(report.updated);
    EXPECT_FALSE(report.is_finite);
    EXPECT_EQ(parameters.values<double>("w")[0], 5);
    EXPECT_EQ(parameters.values<double>("w")[1], 6);
    EXPECT_EQ(wrapper.optimizer().steps(0)[0], 0);
  }
}

TEST(TensorClipTest, EveryGroupByItself) {
  DeviceParameters parameters(DType::float64, {{"b", {1}}, {"w", {1, 2}}, {"unused", {3}}});
  OptionValues settings = {{"lr", "1"}, {"weight_decay", "0.5"}, {"no_decay", "norms_biases"}};
  OptimWrapper wrapper(make_optimizer(settings, parameters), parameters,
                       {.clip = {.max_norm = 2.5, .is_by_group = true}});
  parameters.set_gradient<double>("b", {1});
  parameters.set_gradient<double>("w", {3, -4});
  EXPECT_DOUBLE_EQ(wrapped_step(wrapper).grad_norm.value(), std::sqrt(26));
  EXPECT_EQ(parameters.values<double>("b")[0], -1);
  EXPECT_NEAR(parameters.values<double>("w")[0], -1.5, 1e-6);
  EXPECT_NEAR(parameters.values<double>("w")[1], 2, 1e-6);
  parameters.drop_gradients();
  parameters.set_gradient<double>("b", {std::nan("")});
  EXPECT_FALSE(wrapped_step(wrapper).updated);
  EXPECT_EQ(parameters.values<double>("b")[0], -1);
}

TEST(TensorLossScaleTest, DividesAndSkips) {
  for (const Clip& clip : {Clip{}, Clip{.max_norm = 2.5}}) {
    DeviceParameters parameters(DType::float32, {{"w", {2}}, {"v", {1}}});
    OptimWrapper wrapper(make_optimizer({{"lr", "1"}}, parameters), parameters,
                         {.clip = clip, .scaler = GradScalerOptions{.init_scale = 4, .growth_interval = 2}});
    parameters.set_gradient<float>("w", {12, -16});
    parameters.set_gradient<float>("v", {0});
    const UpdateReport report = wrapped_step(wrapper);
    EXPECT_TRUE(report.updated);
    EXPECT_EQ(report.grad_norm, clip.max_norm > 0 ? std::optional(5.0) : std::nullopt);
    const double part = clip.max_norm > 0 ? 0.5 : 1;
    EXPECT_NEAR(parameters.values<float>("w")[0], -3 * part, 1e-6);
    EXPECT_NEAR(parameters.values<float>("w")[1], 4 * part, 1e-6);
    const std::vector<float> before(parameters.values<float>("w").begin(), parameters.values<float>("w").end());
    for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
      parameters.set_gradient<float>("v", {bad});
      EXPECT_FALSE(wrapped_step(wrapper).updated);
      EXPECT_EQ(std::vector<float>(parameters.values<float>("w").begin(), parameters.values<float>("w").end()), before);
      EXPECT_EQ(wrapper.optimizer().steps(0)[0], 1);
    }
    EXPECT_EQ(wrapper.scaler()->scale(), 1);
  }
}

TEST(TensorStackTest, HasRowsOfOnePartEach) {
  const std::vector<at::Tensor> tensors = {at::arange(130, at::kDouble).view({10, 13}).t(), at::empty({0}, at::kDouble),
                                           at::ones({7}, at::kDouble)};
  const TensorStack stack = TensorStack::of(tensors);
  EXPECT_EQ(stack.rows().sizes(), at::IntArrayRef({4, 64}));
  EXPECT_EQ(stack.first_row(2), 3);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_TRUE(at::equal(stack.parts()[i], tensors[i]));
    EXPECT_EQ(stack.parts()[i].strides(), tensors[i].strides());
  }
  EXPECT_EQ(stack.rows()[2][1].item<double>(), 129);
  const at::Tensor numbers = at::arange(1, 7, at::kDouble).view({2, 3});
  EXPECT_TRUE(at::equal(stack.by_row(numbers[0].unbind()), at::tensor({1.0, 1.0, 1.0, 3.0}, at::kDouble).view({4, 1})));
  EXPECT_EQ(stack.by_row(numbers.unbind(1)).sizes(), at::IntArrayRef({2, 4, 1}));
  EXPECT_EQ(stack.by_row(numbers.unbind(1))[1][3].item<double>(), 6);
  stack.rows().add_(1);
  EXPECT_TRUE(at::equal(stack.parts_of(stack.rows())[2], tensors[2] + 1));
}

TEST(TensorStackTest, ListsAreDividedByTheirMemory) {
  const at::Tensor large = at::zeros({}).expand({std::int64_t{1} << 23});
  const auto parts = divided_for_stacks({large, large, at::ones({3}), large, large});
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0].size(), 2U);
  EXPECT_EQ(parts[1].size(), 3U);
  EXPECT_TRUE(divided_for_stacks({}).empty());
}

}  // namespace tensor_update_test
}  // namespace lockstep::optim
