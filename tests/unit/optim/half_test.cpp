// SPDX-License-Identifier: BSD-3-Clause
// Parameters of 16 bits without masters, and updated by tensors.
#include <lockstep/optim/optim_wrapper.hpp>
#include <lockstep/optim/tensor_update.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

#include "core/numbers/dtype.hpp"
#include "every_loop.hpp"
#include "kernels/optimizers.hpp"
#include "make_optimizer.hpp"
#include "optim/update/stochastic_rounding.hpp"
#include "support/device_parameters_double.hpp"

namespace lockstep::optim {
namespace half_test {

using testing::DeviceParametersDouble;
using testing::FlatParametersDouble;
using Halves = std::vector<std::uint16_t>;
using Floats = std::vector<float>;

constexpr HalfOptions kNoMasters = {.has_masters = false};
constexpr HalfOptions kStochastic = {.has_masters = false, .rounds_stochastically = true, .seed = 3};
constexpr int kSteps = 4;

const std::vector<FlatParametersDouble::Parameter> kShapes = {{"w", {53, 78}}, {"b", {7}}};

std::size_t count_of(const std::string& name) { return name == "w" ? 53 * 78 : 7; }

Floats widened(std::span<const std::uint16_t> halves) {
  Floats floats;
  for (const std::uint16_t half : halves) floats.push_back(bfloat16_to_float(half));
  return floats;
}

Halves rounded(std::span<const float> floats) {
  Halves halves;
  for (const float value : floats) halves.push_back(float_to_bfloat16(value));
  return halves;
}

Halves wave(const std::string& name, double start) {
  Floats numbers(count_of(name));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<float>(std::sin(start + 0.37 * static_cast<double>(i)));
  }
  return rounded(numbers);
}

Halves values_of(FlatParametersDouble& parameters, const std::string& name) {
  const auto values = parameters.values<std::uint16_t>(name);
  return {values.begin(), values.end()};
}

void begin(FlatParametersDouble& parameters) {
  for (const auto& [name, shape] : kShapes) parameters.set_values<std::uint16_t>(name, wave(name, 1));
}

void set_gradients(FlatParametersDouble& parameters, int step) {
  for (const auto& [name, shape] : kShapes) parameters.set_gradient<std::uint16_t>(name, wave(name, 2 + step));
}

// An update is that of the same numbers in float32, rounded; the next one begins at the rounded numbers.
TEST(HalfTest, WithoutMastersUpdatesAreThoseOfTheRoundedNumbers) {
  for (const OptionValues& settings : every_loop()) {
    SCOPED_TRACE(settings.front().second);
    FlatParametersDouble halves(DType::bfloat16, kShapes);
    FlatParametersDouble singles(DType::float32, kShapes);
    begin(halves);
    for (const auto& [name, shape] : kShapes) singles.set_values<float>(name, widened(wave(name, 1)));
    Optimizer of_halves = make_optimizer(settings, halves, kNoMasters);
    Optimizer of_singles = make_optimizer(settings, singles);
    EXPECT_EQ(of_halves.state_names(), of_singles.state_names());
    for (int step = 0; step < kSteps; ++step) {
      set_gradients(halves, step);
      for (const auto& [name, shape] : kShapes) singles.set_gradient<float>(name, widened(wave(name, 2 + step)));
      of_halves.step({.factor = 0.5, .limit = 0.45});
      of_singles.step({.factor = 0.5, .limit = 0.45});
      for (const auto& [name, shape] : kShapes) {
        const Halves expected = rounded(singles.values<float>(name));
        EXPECT_EQ(values_of(halves, name), expected) << name;
        singles.set_values<float>(name, widened(expected));
      }
    }
    EXPECT_NE(values_of(halves, "w"), wave("w", 1));
  }
}

// 100 steps of 2^-12 from 1 are 6.25 units of 2^-8, the distance of numbers below 1: to nearest, each is lost.
TEST(HalfTest, StochasticRoundingKeepsSmallUpdatesOnAverage) {
  const auto mean_after = [](const HalfOptions& options) {
    FlatParametersDouble parameters(DType::bfloat16, kShapes);
    Optimizer optimizer = make_optimizer({{"lr", "0.000244140625"}}, parameters, options);
    parameters.set_values<std::uint16_t>("w", rounded(Floats(count_of("w"), 1)));
    for (int step = 0; step < 100; ++step) {
      parameters.set_gradient<std::uint16_t>("w", rounded(Floats(count_of("w"), 1)));
      optimizer.step();
    }
    double sum = 0;
    for (const float value : widened(parameters.values<std::uint16_t>("w"))) sum += static_cast<double>(value);
    return sum / static_cast<double>(count_of("w"));
  };
  EXPECT_EQ(mean_after(kNoMasters), 1);
  // 100 draws with the probability 2^-4: a standard deviation of 2.4 units per element.
  const double deviation = 2.4 * 0x1p-8 / std::sqrt(static_cast<double>(count_of("w")));
  EXPECT_NEAR(mean_after(kStochastic), 1 - 100 * 0x1p-12, 5 * deviation);
}

Halves trained_parts(const std::vector<std::pair<std::int64_t, std::int64_t>>& parts, std::int64_t longest_visit) {
  Halves all(count_of("w"));
  for (const auto& [first, end] : parts) {
    FlatParametersDouble parameters(DType::bfloat16, kShapes);
    parameters.longest_visit = longest_visit;
    begin(parameters);
    parameters.own("w", first, end);
    Optimizer optimizer = make_optimizer({{"name", "adamw"}, {"lr", "0.001"}}, parameters, kStochastic);
    for (int step = 0; step < kSteps; ++step) {
      set_gradients(parameters, step);
      optimizer.step();
    }
    const Halves values = values_of(parameters, "w");
    std::copy(values.begin() + first, values.begin() + end, all.begin() + first);
  }
  return all;
}

TEST(HalfTest, StochasticRoundingDoesNotDependOnTheDivisionAmongRanks) {
  const auto count = static_cast<std::int64_t>(count_of("w"));
  const Halves whole = trained_parts({{0, count}}, kPieceElements);
  EXPECT_EQ(trained_parts({{0, kPieceElements}, {kPieceElements, count}}, kPieceElements), whole);
  EXPECT_EQ(trained_parts({{0, count}}, 2 * kPieceElements), whole);
  EXPECT_NE(whole, wave("w", 1));
}

// A restart in the middle of a run: parameters, states and the counts of updates are all that is needed.
TEST(HalfTest, StochasticRoundingContinuesBitForBit) {
  const OptionValues settings = {{"name", "sgd"}, {"momentum", "0.9"}, {"lr", "0.001"}};
  FlatParametersDouble used_parameters(DType::bfloat16, kShapes);
  begin(used_parameters);
  Optimizer used = make_optimizer(settings, used_parameters, kStochastic);
  for (int step = 0; step < 3; ++step) {
    set_gradients(used_parameters, step);
    used.step();
  }
  const auto continued = [&](bool takes_counts) {
    FlatParametersDouble parameters(DType::bfloat16, kShapes);
    for (const auto& [name, shape] : kShapes) {
      parameters.set_values<std::uint16_t>(name, values_of(used_parameters, name));
    }
    Optimizer fresh = make_optimizer(settings, parameters, kStochastic);
    std::ranges::copy(used.state(0, 0), fresh.state(0, 0).begin());
    if (takes_counts) std::ranges::copy(used.steps(0), fresh.steps(0).begin());
    set_gradients(parameters, 3);
    fresh.step();
    return values_of(parameters, "w");
  };
  const Halves resumed = continued(true);
  const Halves without_counts = continued(false);
  set_gradients(used_parameters, 3);
  used.step();
  EXPECT_EQ(resumed, values_of(used_parameters, "w"));
  EXPECT_NE(without_counts, values_of(used_parameters, "w"));
}

Floats master_of(Optimizer& optimizer) {
  const StateArray state = optimizer.state_of(0, 0, optimizer.state_names().size() - 1).value();
  const auto* const values = reinterpret_cast<const float*>(state.values);
  return {values, values + count_of("w")};
}

class HalfTensorTest : public ::testing::TestWithParam<HalfOptions> {};

// The kernels round in another order: masters differ by roundings in float32, and parameters where this decides.
TEST_P(HalfTensorTest, TensorsDoWhatLoopsDo) {
  for (const OptionValues& settings : every_loop()) {
    SCOPED_TRACE(settings.front().second);
    FlatParametersDouble by_pieces(DType::bfloat16, kShapes);
    DeviceParametersDouble by_tensors(DType::bfloat16, kShapes);
    begin(by_pieces);
    begin(by_tensors);
    Optimizer pieces = make_optimizer(settings, by_pieces, GetParam());
    Optimizer tensors = make_optimizer(settings, by_tensors, GetParam());
    std::int64_t differing = 0;
    for (int step = 0; step < kSteps; ++step) {
      set_gradients(by_pieces, step);
      set_gradients(by_tensors, step);
      pieces.step({.factor = 0.5, .limit = 0.45});
      tensors.step_tensors({.factors = {at::full({}, 0.5)}, .limit = 0.45, .is_void = {}});
      for (const auto& [name, shape] : kShapes) {
        const Halves actual = values_of(by_tensors, name);
        const Halves expected = values_of(by_pieces, name);
        for (std::size_t i = 0; i < actual.size(); ++i) {
          differing += actual[i] != expected[i] ? 1 : 0;
          const float value = bfloat16_to_float(expected[i]);
          ASSERT_NEAR(bfloat16_to_float(actual[i]), value, 0x1p-7F * std::abs(value) + 1e-6F) << name << i;
        }
        by_tensors.set_values<std::uint16_t>(name, expected);
      }
    }
    EXPECT_LE(differing, 40);
    if (GetParam().has_masters) {
      const Floats actual = master_of(tensors);
      const Floats expected = master_of(pieces);
      for (std::size_t i = 0; i < actual.size(); ++i) ASSERT_NEAR(actual[i], expected[i], 1e-2F) << i;
    }
  }
}

TEST_P(HalfTensorTest, AVoidStepChangesNothing) {
  for (const OptionValues& settings : every_loop()) {
    SCOPED_TRACE(settings.front().second);
    DeviceParametersDouble parameters(DType::bfloat16, kShapes);
    begin(parameters);
    Optimizer optimizer = make_optimizer(settings, parameters, GetParam());
    set_gradients(parameters, 0);
    optimizer.step_tensors({});
    const Halves before = values_of(parameters, "w");
    const auto state = [&] {
      const auto bytes = optimizer.state(0, optimizer.state_names().size() - 1);
      return std::vector<std::byte>(bytes.begin(), bytes.end());
    };
    const std::vector<std::byte> state_before = optimizer.state_names().empty() ? std::vector<std::byte>() : state();
    set_gradients(parameters, 1);
    TensorChange change;
    change.is_void = at::ones({}, at::kFloat);
    optimizer.step_tensors(change);
    optimizer.uncount_step();
    EXPECT_EQ(values_of(parameters, "w"), before);
    if (!optimizer.state_names().empty()) {
      EXPECT_EQ(state(), state_before);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Options, HalfTensorTest, ::testing::Values(HalfOptions(), kNoMasters, kStochastic));

TEST(HalfGradientTest, TensorsHaveTheNormAndTheFaultsOfLoops) {
  FlatParametersDouble by_pieces(DType::bfloat16, kShapes);
  DeviceParametersDouble by_tensors(DType::bfloat16, kShapes);
  set_gradients(by_pieces, 0);
  set_gradients(by_tensors, 0);
  for (const double norm_type : {1.0, 2.0, std::numeric_limits<double>::infinity()}) {
    const double expected = gradient_norm(by_pieces, norm_type);
    EXPECT_NEAR(gradient_norm_tensor(by_tensors, norm_type).item<double>(), expected, 1e-6 * expected);
  }
  EXPECT_EQ(unscale_gradients(by_tensors, 4).item<float>(), 0);
  EXPECT_EQ(bfloat16_to_float(by_tensors.gradient_of<std::uint16_t>("w")[5]), bfloat16_to_float(wave("w", 2)[5]) / 4);
  Halves faulty = wave("w", 2);
  faulty[100] = float_to_bfloat16(std::numeric_limits<float>::infinity());
  by_tensors.set_gradient<std::uint16_t>("w", faulty);
  EXPECT_EQ(unscale_gradients(by_tensors, 1).item<float>(), 1);
}

}  // namespace half_test
}  // namespace lockstep::optim
