// SPDX-License-Identifier: BSD-3-Clause
// Parameters of 16 bits beside an update of the same numbers in float32.
#include <lockstep/optim/optim_wrapper.hpp>

#include <gtest/gtest.h>

#include <cmath>

#include "core/numbers/dtype.hpp"
#include "every_loop.hpp"
#include "make_optimizer.hpp"
#include "support/flat_parameters_double.hpp"

namespace lockstep::optim {
namespace master_test {

using testing::FlatParametersDouble;
using Halves = std::vector<std::uint16_t>;
using Floats = std::vector<float>;

constexpr std::int64_t kRows = 53;
constexpr std::int64_t kColumns = 78;
constexpr std::int64_t kCount = kRows * kColumns;  // more than a piece
constexpr int kSteps = 5;

Floats widened(DType dtype, const Halves& halves) {
  Floats floats(halves.size());
  half_format(dtype).widen(reinterpret_cast<const std::byte*>(halves.data()), floats.data(), floats.size());
  return floats;
}

Halves rounded(DType dtype, const Floats& floats) {
  Halves halves(floats.size());
  half_format(dtype).narrow(floats.data(), reinterpret_cast<std::byte*>(halves.data()), floats.size());
  return halves;
}

/// Numbers that both types hold.
Halves wave(DType dtype, double start) {
  Floats numbers;
  for (std::int64_t i = 0; i < kCount; ++i) {
    numbers.push_back(static_cast<float>(std::sin(start + 0.37 * static_cast<double>(i))));
  }
  return rounded(dtype, numbers);
}

template <class T>
std::vector<T> values_of(FlatParametersDouble& parameters) {
  const auto values = parameters.values<T>("w");
  return {values.begin(), values.end()};
}

class MasterTest : public ::testing::TestWithParam<DType> {
 protected:
  Floats master(Optimizer& optimizer) {
    const StateArray state = optimizer.state_of(0, 0, optimizer.state_names().size() - 1).value();
    EXPECT_EQ(optimizer.state_names().back(), "master");
    EXPECT_EQ(state.dtype, DType::float32);
    const auto* const values = reinterpret_cast<const float*>(state.values);
    return {values, values + kCount};
  }
  const DType dtype_ = GetParam();
  FlatParametersDouble half_{dtype_, {{"w", {kRows, kColumns}}}};
  FlatParametersDouble single_{DType::float32, {{"w", {kRows, kColumns}}}};
};

// The master has the bits of the float32 run after every step, and the parameter is that, rounded.
TEST_P(MasterTest, HasTheBitsOfARunInSingle) {
  for (const OptionValues& settings : every_loop()) {
    SCOPED_TRACE(settings.front().second);
    half_.set_values("w", wave(dtype_, 1));
    single_.set_values("w", widened(dtype_, wave(dtype_, 1)));
    Optimizer of_half = make_optimizer(settings, half_);
    Optimizer of_single = make_optimizer(settings, single_);
    for (int k = 0; k < kSteps; ++k) {
      half_.set_gradient("w", wave(dtype_, 2 + k));
      single_.set_gradient("w", widened(dtype_, wave(dtype_, 2 + k)));
      of_half.step({.factor = 0.5, .limit = 0.45});
      of_single.step({.factor = 0.5, .limit = 0.45});
      EXPECT_EQ(master(of_half), values_of<float>(single_));
      EXPECT_EQ(values_of<std::uint16_t>(half_), rounded(dtype_, values_of<float>(single_)));
    }
    EXPECT_NE(values_of<std::uint16_t>(half_), wave(dtype_, 1));
  }
}

// Steps below half a unit of the parameter's last place add up: 20 times 2^-13 is 1.25 units of fp16, 0.16 of bf16.
TEST_P(MasterTest, KeepsWhatRoundingWouldLose) {
  half_.set_values("w", rounded(dtype_, Floats(kCount, -1)));
  Optimizer optimizer = make_optimizer({{"lr", "0.0001220703125"}}, half_);
  for (int k = 0; k < 20; ++k) {
    half_.set_gradient("w", rounded(dtype_, Floats(kCount, 1)));
    optimizer.step();
  }
  EXPECT_EQ(master(optimizer), Floats(kCount, -1 - 20.0F / 8192));
  const float unit = dtype_ == DType::float16 ? 1.0F / 1024 : 1.0F / 128;
  const float in_half = -1 - std::nearbyint(20.0F / 8192 / unit) * unit;
  EXPECT_EQ(values_of<std::uint16_t>(half_), rounded(dtype_, Floats(kCount, in_half)));
}

// Somebody else changes a parameter, as a restored checkpoint or an average does: its master follows, no other does.
TEST_P(MasterTest, FollowsParametersThatSomebodyElseWrote) {
  half_.set_values("w", wave(dtype_, 1));
  Optimizer optimizer = make_optimizer({{"lr", "0.0001220703125"}}, half_);
  half_.set_gradient("w", wave(dtype_, 2));
  optimizer.step();
  const Floats before = master(optimizer);
  half_.values<std::uint16_t>("w")[3] = rounded(dtype_, {0.625F})[0];
  half_.set_gradient("w", rounded(dtype_, Floats(kCount, 0)));
  optimizer.step();
  Floats expected = before;
  expected[3] = 0.625F;
  EXPECT_NE(expected, before);
  EXPECT_EQ(master(optimizer), expected);
}

TEST_P(MasterTest, GradientsHaveTheNormOfWhatTheyAreInSingle) {
  half_.set_gradient("w", wave(dtype_, 2));
  single_.set_gradient("w", widened(dtype_, wave(dtype_, 2)));
  for (const double norm_type : {1.0, 2.0, std::numeric_limits<double>::infinity()}) {
    EXPECT_GT(gradient_norm(half_, norm_type), 0);
    EXPECT_EQ(gradient_norm(half_, norm_type), gradient_norm(single_, norm_type));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, MasterTest, ::testing::Values(DType::bfloat16, DType::float16),
                         [](const auto& test) { return std::string(name_of(test.param)); });

}  // namespace master_test
}  // namespace lockstep::optim
