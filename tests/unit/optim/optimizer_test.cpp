// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <cmath>

#include "make_optimizer.hpp"
#include "support/flat_parameters_double.hpp"

namespace lockstep::optim {
namespace optimizer_test {

using testing::FlatParametersDouble;

const OptionValues kAdamW = {{"name", "adamw"}, {"weight_decay", "0.1"}, {"lr", "0.01"}};
const OptionValues kMomentum = {{"momentum", "0.9"}, {"weight_decay", "0.1"}};

/// 40 + 7 + 30 floats, in blocks of 16 that begin at 0, 48 and 64.
std::vector<FlatParametersDouble::Parameter> three_parameters() { return {{"a", {8, 5}}, {"b", {7}}, {"c", {5, 6}}}; }

std::vector<float> wave(std::size_t count, float start) {
  std::vector<float> numbers(count);
  for (std::size_t i = 0; i < count; ++i) numbers[i] = std::sin(start + 0.37F * static_cast<float>(i));
  return numbers;
}

void fill(FlatParametersDouble& parameters) {
  parameters.set_values("a", wave(40, 1));
  parameters.set_values("b", wave(7, 2));
  parameters.set_values("c", wave(30, 3));
}

/// Gradients of step `k`; "b" gets none in every third.
void set_gradients(FlatParametersDouble& parameters, int k) {
  const auto start = static_cast<float>(10 * k);
  parameters.drop_gradients();
  parameters.set_gradient("a", wave(40, start));
  if (k % 3 != 1) parameters.set_gradient("b", wave(7, start + 1));
  parameters.set_gradient("c", wave(30, start + 2));
}

std::vector<std::byte> copy_of(std::span<const std::byte> bytes) { return {bytes.begin(), bytes.end()}; }

TEST(OptimizerTest, EveryUpdateGoesThroughWrite) {
  FlatParametersDouble parameters(DType::float32, three_parameters());
  Optimizer optimizer = make_optimizer({}, parameters);
  set_gradients(parameters, 0);
  optimizer.step();
  optimizer.step();
  EXPECT_EQ(parameters.writes, 2);
}

TEST(OptimizerTest, AParameterWithoutGradientIsLeftAlone) {
  FlatParametersDouble parameters(DType::float32, {{"with", {2}}, {"without", {2}}});
  parameters.set_values<float>("with", {1, 1});
  parameters.set_values<float>("without", {1, 1});
  parameters.set_gradient<float>("with", {1, 1});
  Optimizer optimizer = make_optimizer({{"lr", "0.5"}, {"momentum", "0.5"}, {"weight_decay", "1"}}, parameters);
  optimizer.step();
  EXPECT_EQ(parameters.values<float>("with")[0], 0);
  EXPECT_EQ(parameters.values<float>("without")[0], 1);
  EXPECT_EQ(optimizer.steps(0)[0], 1);
  EXPECT_EQ(optimizer.steps(0)[1], 0);
  // Its first gradient, in the second step, is a first one: the velocity is the whole gradient.
  parameters.set_gradient<float>("without", {1, 1});
  optimizer.step();
  EXPECT_EQ(parameters.values<float>("without")[0], 0);
  EXPECT_EQ(optimizer.steps(0)[1], 1);
}

TEST(OptimizerTest, GroupsHaveTheirOwnOptions) {
  FlatParametersDouble parameters(DType::float64, {{"w", {1, 1}}, {"bias", {1}}});
  parameters.set_values<double>("w", {1});
  parameters.set_values<double>("bias", {1});
  parameters.set_gradient<double>("w", {2});
  parameters.set_gradient<double>("bias", {2});
  Optimizer optimizer =
      make_optimizer({{"lr", "0.25"}, {"weight_decay", "0.5"}, {"no_decay", "norms_biases"}}, parameters);
  optimizer.step();
  EXPECT_EQ(parameters.values<double>("w")[0], 0.375);
  EXPECT_EQ(parameters.values<double>("bias")[0], 0.5);
  optimizer.groups()[1].options["lr"] = 0.125;  // changed as a schedule does
  optimizer.step();
  EXPECT_EQ(parameters.values<double>("bias")[0], 0.25);
}

TEST(OptimizerTest, PaddingIsNeverWritten) {
  FlatParametersDouble parameters(DType::float32, {{"w", {3}}});
  parameters.set_values<float>("w", {1, 2, 3});
  parameters.set_gradient<float>("w", {1, 1, 1});
  make_optimizer(kAdamW, parameters).step();
  const auto bytes = parameters.bytes();
  ASSERT_EQ(bytes.size(), 64U);
  for (std::size_t i = 3 * sizeof(float); i < bytes.size(); ++i) EXPECT_EQ(bytes[i], std::byte{0}) << i;
}

// One rank owns what lies before the border in each parameter, the other the rest.
TEST(OptimizerTest, OwnersOfPartsMakeTheSameBitsAsOneOwner) {
  for (const OptionValues& settings : {kMomentum, kAdamW}) {
    for (const std::int64_t border : {0, 3, 16, 40}) {
      FlatParametersDouble whole(DType::float32, three_parameters());
      FlatParametersDouble low(DType::float32, three_parameters());
      FlatParametersDouble high(DType::float32, three_parameters());
      const std::vector<std::pair<std::string, std::int64_t>> sizes = {{"a", 40}, {"b", 7}, {"c", 30}};
      for (const auto& [name, count] : sizes) {
        low.own(name, 0, std::min(border, count));
        high.own(name, std::min(border, count), count);
      }
      for (FlatParametersDouble* parameters : {&whole, &low, &high}) fill(*parameters);
      Optimizer one = make_optimizer(settings, whole);
      Optimizer first = make_optimizer(settings, low);
      Optimizer second = make_optimizer(settings, high);
      const std::vector<std::byte> start = copy_of(whole.bytes());
      for (int k = 0; k < 5; ++k) {
        for (FlatParametersDouble* parameters : {&whole, &low, &high}) set_gradients(*parameters, k);
        for (Optimizer* optimizer : {&one, &first, &second}) optimizer->step();
      }
      EXPECT_NE(copy_of(whole.bytes()), start);
      for (const auto& [name, count] : sizes) {
        const auto start_of = [&, name = name] {
          FlatParametersDouble fresh(DType::float32, three_parameters());
          fill(fresh);
          const auto values = fresh.values<float>(name);
          return std::vector<float>(values.begin(), values.end());
        }();
        for (std::int64_t i = 0; i < count; ++i) {
          const auto position = static_cast<std::size_t>(i);
          const bool is_low = i < border;
          EXPECT_EQ((is_low ? low : high).values<float>(name)[position], whole.values<float>(name)[position])
              << name << i;
          EXPECT_EQ((is_low ? high : low).values<float>(name)[position], start_of[position]) << name << i;
        }
      }
      EXPECT_EQ(std::vector(first.steps(0).begin(), first.steps(0).end()), (std::vector<std::int64_t>{5, 3, 5}));
      EXPECT_EQ(std::vector(second.steps(0).begin(), second.steps(0).end()), (std::vector<std::int64_t>{5, 3, 5}));
    }
  }
}

TEST(OptimizerTest, StateStartsAtZeroOnWholeCacheLines) {
  FlatParametersDouble parameters(DType::float32, three_parameters());
  Optimizer optimizer = make_optimizer(kAdamW, parameters);
  ASSERT_EQ(optimizer.state_names(), (std::vector<std::string>{"exp_avg", "exp_avg_sq"}));
  for (std::size_t slot = 0; slot < 2; ++slot) {
    const auto state = optimizer.state(0, slot);
    EXPECT_EQ(state.size(), static_cast<std::size_t>(parameters.count()) * sizeof(float));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(state.data()) % 64, 0U);
    EXPECT_EQ(copy_of(state), std::vector<std::byte>(state.size()));
  }
}

TEST(OptimizerTest, StateAndStepsRestoreAnOptimizer) {
  for (const OptionValues& settings : {kMomentum, kAdamW}) {
    FlatParametersDouble used_parameters(DType::float32, three_parameters());
    FlatParametersDouble fresh_parameters(DType::float32, three_parameters());
    fill(used_parameters);
    Optimizer used = make_optimizer(settings, used_parameters);
    Optimizer fresh = make_optimizer(settings, fresh_parameters);
    for (int k = 0; k < 4; ++k) {
      set_gradients(used_parameters, k);
      used.step();
    }
    const auto step_both = [&](int k) {
      set_gradients(used_parameters, k);
      set_gradients(fresh_parameters, k);
      used.step();
      fresh.step();
    };
    const auto copy_parameters = [&] {
      for (const char* name : {"a", "b", "c"}) {
        const auto values = used_parameters.values<float>(name);
        fresh_parameters.set_values(name, std::vector(values.begin(), values.end()));
      }
    };
    copy_parameters();
    EXPECT_NE(copy_of(used.state(0, 0)), copy_of(fresh.state(0, 0)));
    EXPECT_NE(used.steps(0)[0], fresh.steps(0)[0]);
    step_both(4);
    EXPECT_NE(copy_of(used_parameters.bytes()), copy_of(fresh_parameters.bytes()));

    copy_parameters();
    for (std::size_t slot = 0; slot < used.state_names().size(); ++slot) {
      std::ranges::copy(used.state(0, slot), fresh.state(0, slot).begin());
    }
    std::ranges::copy(used.steps(0), fresh.steps(0).begin());
    step_both(5);
    EXPECT_EQ(copy_of(used_parameters.bytes()), copy_of(fresh_parameters.bytes()));
    for (std::size_t slot = 0; slot < used.state_names().size(); ++slot) {
      EXPECT_EQ(copy_of(used.state(0, slot)), copy_of(fresh.state(0, slot)));
    }
  }
}

TEST(OptimizerTest, RefusesOtherTypes) {
  FlatParametersDouble integers(DType::int32, {{"w", {2}}});
  try {
    make_optimizer({}, integers);
    ADD_FAILURE() << "int32 was accepted";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "parameter 'w' is int32, but optimizers update floating-point numbers only");
  }
  FlatParametersDouble halves(DType::bfloat16, {{"w", {2}}});
  try {
    make_optimizer({{"name", "lbfgs"}}, halves);
    ADD_FAILURE() << "lbfgs accepted bfloat16";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "parameter 'w' is bfloat16, but lbfgs updates float32 and float64 only");
  }
  FlatParametersDouble others(DType::float16, {{"w", {2}}});
  EXPECT_THROW(make_optimizer({}, others, {.has_masters = false, .rounds_stochastically = true}), ConfigError);
}

// One begins with square_avg, grad_avg and the other with square_avg, momentum_buffer.
TEST(OptimizerTest, GroupsKeepTheSameStates) {
  FlatParametersDouble parameters(DType::float32, {{"w", {2}}, {"b", {2}}});
  const Rule& rule = find_rule("rmsprop");
  const auto group = [&rule](const std::string& name, const OptionValues& settings) {
    const std::vector<ParameterInfo> infos = {{name, 1}};
    return build_groups(section_of(settings), rule, infos).front();
  };
  const ParamGroup centered = group("w", {{"centered", "true"}});
  EXPECT_THROW(Optimizer(rule, {centered, group("b", {{"momentum", "0.9"}})}, parameters), ConfigError);
  EXPECT_NO_THROW(Optimizer(rule, {centered, group("b", {})}, parameters));
}

/// The numbers that a program's rule computes once for each update.
struct Slowing {
  double lr;
  std::int64_t step;
};

template <class T>
void step_slowly(const Coefficients& coefficients, const ElementRange<T>& range) {
  const auto slowing = coefficients.as<Slowing>();
  const auto length = static_cast<T>(slowing.lr / static_cast<double>(slowing.step));
  for (std::int64_t i = 0; i < range.count; ++i) range.parameter[i] -= length * range.gradient[i];
}

TEST(OptimizerTest, AProgramsRuleHasCoefficientsOfItsOwn) {
  Rule rule = find_rule("sgd");
  rule.kind = ElementRule{
      .coefficients = [](const Options& options,
                         std::int64_t step) { return Coefficients::of(Slowing{.lr = options.at("lr"), .step = step}); },
      .update32 = step_slowly<float>,
      .update64 = step_slowly<double>};
  FlatParametersDouble parameters(DType::float64, {{"w", {2}}});
  const std::vector<ParameterInfo> infos = {{"w", 1}};
  Optimizer optimizer(rule, build_groups(section_of({{"lr", "0.5"}}), rule, infos), parameters);
  parameters.set_values<double>("w", {1, 2});
  for (int i = 0; i < 2; ++i) {
    parameters.set_gradient<double>("w", {1, 4});
    optimizer.step();
  }
  EXPECT_EQ(parameters.values<double>("w")[0], 1 - 0.5 - 0.25);
  EXPECT_EQ(parameters.values<double>("w")[1], 2 - 2.0 - 1.0);
}

// lamb's corrections are of the step, not of the parameter: without a gradient it counts all the same.
TEST(OptimizerTest, ARuleMayCountEveryStep) {
  FlatParametersDouble parameters(DType::float32, {{"with", {2}}, {"without", {2}}});
  parameters.set_values<float>("without", {1, 1});
  Optimizer optimizer = make_optimizer({{"name", "lamb"}, {"weight_decay", "0.1"}}, parameters);
  parameters.set_gradient<float>("with", {1, 1});
  optimizer.step();
  EXPECT_EQ(optimizer.steps(0)[0], 1);
  EXPECT_EQ(optimizer.steps(0)[1], 1);
  EXPECT_EQ(parameters.values<float>("without")[0], 1);
}

TEST(OptimizerTest, EveryParameterBelongsToOneGroup) {
  FlatParametersDouble parameters(DType::float32, {{"w", {2}}, {"b", {2}}});
  const Rule& rule = find_rule("sgd");
  const auto group = [&rule](const std::vector<std::string>& names) {
    std::vector<ParameterInfo> infos;
    for (const std::string& name : names) infos.push_back({name, 1});
    return build_groups(section_of({}), rule, infos).front();
  };
  EXPECT_THROW(Optimizer(rule, {group({"w"})}, parameters), std::logic_error);
  EXPECT_THROW(Optimizer(rule, {group({"w", "b"}), group({"b"})}, parameters), std::logic_error);
  EXPECT_THROW(Optimizer(rule, {group({"w", "b", "c"})}, parameters), std::logic_error);
  EXPECT_NO_THROW(Optimizer(rule, {group({"w"}), group({"b"})}, parameters));
}

}  // namespace optimizer_test
}  // namespace lockstep::optim
