// SPDX-License-Identifier: BSD-3-Clause
// Averages of weights: what they are by their formulas, who averages which part, and what changes places with them.
#include "optim/averages/model_average.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

#include "support/device_parameters_double.hpp"

namespace lockstep::optim {
namespace model_average_test {

using testing::FlatParametersDouble;
using Buffers = std::vector<ModelAverage::NamedBuffer>;

const std::vector<FlatParametersDouble::Parameter> kOne = {{"w", {1}}};

const AverageRule& rule(const std::string& name) {
  Section ema = Section::with_defaults("ema", ema_keys());
  ema.set("kind", name, "test");
  return *find_average(ema);
}

ModelAverage average_of(FlatParameters& parameters, const std::string& name, const AverageOptions& options,
                        const Buffers& buffers = {}) {
  return {rule(name), options, parameters, [buffers] { return buffers; }};
}

template <class T>
std::vector<T> averaged(ModelAverage& average, std::int64_t count) {
  const auto* const first = reinterpret_cast<const T*>(average.parameters(0).data());
  return {first, first + count};
}

/// The average after each value of the only element.
std::vector<double> averages_over(const std::string& name, const AverageOptions& options,
                                  const std::vector<double>& values) {
  FlatParametersDouble parameters(DType::float64, kOne);
  ModelAverage average = average_of(parameters, name, options);
  std::vector<double> averages;
  for (const double value : values) {
    parameters.set_values<double>("w", {value});
    average.update();
    averages.push_back(averaged<double>(average, 1)[0]);
  }
  EXPECT_EQ(average.updates(), static_cast<std::int64_t>(values.size()));
  return averages;
}

void expect_near(const std::vector<double>& actual, const std::vector<double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-15 * expected[i]) << i;
}

// Cases 12.1.3 to 12.1.5: the weights are 1, 2, 3.
TEST(ModelAverageTest, FollowsTheFormulas) {
  expect_near(averages_over("swa", {}, {1, 2, 3}), {1, 1.5, 2});
  expect_near(averages_over("ema", {.decay = 0.9}, {1, 2, 3}), {1, 1.1, 1.29});
  expect_near(averages_over("annealing", {.decay = 0.9, .gamma = 4}, {1, 2, 3}), {1, 1.8, 2.6});
}

// Annealing becomes ema where gamma / (gamma + n) falls below 1 - decay: with n = 4 and gamma 1 it is 0.2.
TEST(ModelAverageTest, AnnealingEndsInEma) {
  expect_near(averages_over("annealing", {.decay = 0.75, .gamma = 1}, {0, 0, 0, 0, 8, 8}), {0, 0, 0, 0, 2, 3.5});
}

// Updates 0, 3 and 6 count.
TEST(ModelAverageTest, OnlyEveryIntervalCounts) {
  const std::vector<double> values = {1, 2, 3, 4, 5, 6, 7};
  const double at_3 = 1 + 4.0 / 7 * (4 - 1);
  expect_near(averages_over("annealing", {.decay = 0.9, .gamma = 4, .interval = 3}, values),
              {1, 1, 1, at_3, at_3, at_3, at_3 + 0.4 * (7 - at_3)});
  expect_near(averages_over("swa", {.interval = 3}, values), {1, 1, 1, 2.5, 2.5, 2.5, 4});
  expect_near(averages_over("swa", {.interval = 2}, {2, 3, 4}), {2, 2, 3});
}

// Steps from 0 towards 1 ten times: 1 - 2^-10.
TEST(ModelAverageTest, ForgetsByHalves) {
  std::vector<double> values(11, 1);
  values[0] = 0;
  EXPECT_EQ(averages_over("ema", {.decay = 0.5}, values).back(), 1 - std::pow(2, -10));
}

TEST(ModelAverageTest, EqualWeightsStayAsTheyAre) {
  FlatParametersDouble parameters(DType::float32, {{"w", {2}}});
  parameters.set_values<float>("w", {0.1F, -3.7F});
  for (const AverageRule& row : builtin_averages()) {
    ModelAverage average = average_of(parameters, row.name, {.decay = 0.9998});
    for (int i = 0; i < 100; ++i) average.update();
    EXPECT_EQ(averaged<float>(average, 2), (std::vector<float>{0.1F, -3.7F})) << row.name;
  }
}

TEST(ModelAverageTest, EachRankAveragesItsOwnParts) {
  FlatParametersDouble parameters(DType::float64, {{"a", {4}}, {"b", {2}}});
  parameters.own("a", 1, 3);
  parameters.own("b", 0, 0);
  parameters.set_values<double>("a", {1, 2, 3, 4});
  parameters.set_values<double>("b", {5, 6});
  ModelAverage average = average_of(parameters, "swa", {});
  average.update();
  EXPECT_EQ(averaged<double>(average, 4), (std::vector<double>{0, 2, 3, 0}));
  EXPECT_EQ(averaged<double>(average, parameters.count())[8], 0);  // b begins on the next 64 bytes
  parameters.set_values<double>("a", {3, 4, 5, 6});
  average.update();
  EXPECT_EQ(averaged<double>(average, 4), (std::vector<double>{0, 3, 4, 0}));
  average.swap();
  EXPECT_EQ(parameters.values<double>("a")[0], 3);
  EXPECT_EQ(parameters.values<double>("a")[1], 3);
  EXPECT_EQ(parameters.values<double>("b")[0], 5);
}

TEST(ModelAverageTest, ChangesPlacesBitForBit) {
  FlatParametersDouble parameters(DType::float32, {{"w", {3}}});
  ModelAverage average = average_of(parameters, "ema", {.decay = 0.7});
  parameters.set_values<float>("w", {1, 2, 3});
  average.update();
  const std::vector<float> last = {0.1F, 0.7F, -1e-30F};
  parameters.set_values<float>("w", last);
  average.update();
  const std::vector<float> mean = averaged<float>(average, 3);
  const auto now = [&] {
    const auto values = parameters.values<float>("w");
    return std::vector<float>(values.begin(), values.end());
  };
  const int writes = parameters.writes;
  average.swap();
  EXPECT_EQ(parameters.writes, writes + 1);
  EXPECT_EQ(now(), mean);
  EXPECT_EQ(averaged<float>(average, 3), last);
  average.swap_alone();
  EXPECT_EQ(parameters.writes, writes + 1);
  EXPECT_EQ(now(), last);
  EXPECT_EQ(averaged<float>(average, 3), mean);
}

// Case 12.1.2: the number of batches is the model's own at any time.
TEST(ModelAverageTest, BuffersAreAveragedOrTheModelsOwn) {
  for (const bool is_averaged : {true, false}) {
    FlatParametersDouble parameters(DType::float64, kOne);
    const at::Tensor mean = at::zeros({2});
    const at::Tensor batches = at::zeros({}, at::kLong);
    ModelAverage average = average_of(parameters, "swa", {.averages_buffers = is_averaged},
                                      {{"norm.mean", mean}, {"norm.batches", batches}});
    for (int i = 1; i <= 3; ++i) {
      mean.fill_(i);
      batches.fill_(i);
      average.update();
    }
    EXPECT_EQ(average.buffers().size(), is_averaged ? 1U : 0U);
    average.swap();
    EXPECT_EQ(mean[1].item<double>(), is_averaged ? 2 : 3);
    EXPECT_EQ(batches.item<std::int64_t>(), 3);
    average.swap();
    EXPECT_EQ(mean[1].item<double>(), 3);
    average.swap_buffers();
    EXPECT_EQ(mean[1].item<double>(), is_averaged ? 2 : 3);
  }
}

TEST(ModelAverageTest, ContinuesFromACount) {
  FlatParametersDouble parameters(DType::float64, kOne);
  ModelAverage average = average_of(parameters, "swa", {.averages_buffers = true}, {{"b", at::full({1}, 9.0)}});
  average.resume_at(2, {{"b", at::full({1}, 3.0)}});
  reinterpret_cast<double*>(average.parameters(0).data())[0] = 1.5;
  parameters.set_values<double>("w", {3});
  average.update();
  EXPECT_EQ(averaged<double>(average, 1)[0], 2);
  EXPECT_EQ(average.buffers().at(0).tensor.item<double>(), 5);
  EXPECT_EQ(average.updates(), 3);
}

TEST(ModelAverageTest, AsTensorsItIsTheSame) {
  testing::DeviceParametersDouble parameters(DType::float64, {{"a", {3}}, {"b", {2}}});
  ModelAverage average = average_of(parameters, "swa", {});
  for (int i = 1; i <= 3; ++i) {
    const double value = i;
    parameters.set_values<double>("a", {value, 2 * value, 3 * value});
    parameters.set_values<double>("b", {-value, value});
    average.update();
  }
  EXPECT_EQ(averaged<double>(average, 3), (std::vector<double>{2, 4, 6}));
  average.swap();
  EXPECT_EQ(parameters.values<double>("b")[0], -2);
  EXPECT_EQ(averaged<double>(average, 3), (std::vector<double>{3, 6, 9}));
  average.swap();
  EXPECT_EQ(parameters.values<double>("b")[0], -3);
}

std::vector<std::uint16_t> in_bfloat16(const std::vector<float>& values) {
  std::vector<std::uint16_t> halves;
  for (const float value : values) halves.push_back(float_to_bfloat16(value));
  return halves;
}

// The mean of 1 and 1 + 2^-7, which are neighbors in bfloat16, lies between them: float32 holds it, bfloat16 does not.
template <class Parameters>
void expect_average_in_float32() {
  Parameters parameters(DType::bfloat16, {{"w", {2}}});
  ModelAverage average = average_of(parameters, "swa", {});
  EXPECT_EQ(average.dtype(0), DType::float32);
  for (const float value : {1.0F, 1.0F + 0x1p-7F}) {
    parameters.template set_values<std::uint16_t>("w", in_bfloat16({value, -4}));
    average.update();
  }
  const std::vector<float> mean = {1 + 0x1p-8F, -4};
  EXPECT_EQ(averaged<float>(average, 2), mean);
  average.swap();
  EXPECT_EQ(parameters.template values<std::uint16_t>("w")[0], float_to_bfloat16(1));  // ties to even
  EXPECT_EQ(averaged<float>(average, 2), mean);
  average.swap();
  EXPECT_EQ(parameters.template values<std::uint16_t>("w")[0], float_to_bfloat16(1 + 0x1p-7F));
  EXPECT_EQ(averaged<float>(average, 2), mean);
  average.swap();  // and once more
  EXPECT_EQ(parameters.template values<std::uint16_t>("w")[0], float_to_bfloat16(1));
  average.swap();
}

TEST(ModelAverageTest, HalvesAreAveragedInFloat32) {
  expect_average_in_float32<FlatParametersDouble>();
  expect_average_in_float32<testing::DeviceParametersDouble>();
}

TEST(ModelAverageTest, ManyHalvesHaveTheAverageOfTheirNumbers) {
  const std::int64_t count = 2 * kPieceElements + 13;
  FlatParametersDouble halves(DType::bfloat16, {{"w", {count}}});
  FlatParametersDouble singles(DType::float32, {{"w", {count}}});
  ModelAverage of_halves = average_of(halves, "ema", {.decay = 0.7});
  ModelAverage of_singles = average_of(singles, "ema", {.decay = 0.7});
  for (int k = 0; k < 3; ++k) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>((i * 7 + 3) % 101 + static_cast<std::size_t>(16 * k));
    halves.set_values<std::uint16_t>("w", in_bfloat16(values));
    singles.set_values<float>("w", values);
    of_halves.update();
    of_singles.update();
  }
  EXPECT_EQ(averaged<float>(of_halves, count), averaged<float>(of_singles, count));
}

std::string error_of(const std::string& key, const std::string& value) {
  Section ema = Section::with_defaults("ema", ema_keys());
  try {
    ema.set(key, value, "test");
    AverageOptions::from(ema);
    find_average(ema);
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(ModelAverageTest, RefusesWhatIsOutOfRange) {
  for (const auto& [key, value] : std::vector<std::pair<std::string, std::string>>{{"decay", "0"},
                                                                                   {"decay", "1"},
                                                                                   {"decay", "-0.1"},
                                                                                   {"decay", "1.5"},
                                                                                   {"gamma", "0"},
                                                                                   {"every", "0"},
                                                                                   {"every", "never"},
                                                                                   {"every", "30s"},
                                                                                   {"kind", "median"},
                                                                                   {"buffers", "drop"}}) {
    EXPECT_NE(error_of(key, value).find("ema." + key), std::string::npos) << key << "=" << value;
  }
  EXPECT_EQ(error_of("decay", "0.999"), "");
  FlatParametersDouble whole(DType::int64, kOne);
  EXPECT_THROW(average_of(whole, "ema", {}), ConfigError);
}

TEST(ModelAverageTest, KeepsNothingUnlessAsked) {
  EXPECT_EQ(find_average(Section::with_defaults("ema", ema_keys())), nullptr);
  const AverageOptions defaults = AverageOptions::from(Section::with_defaults("ema", ema_keys()));
  EXPECT_EQ(defaults.decay, 0.9998);
  EXPECT_EQ(defaults.gamma, 100);
  EXPECT_EQ(defaults.interval, 1);
  EXPECT_FALSE(defaults.averages_buffers);
}

}  // namespace model_average_test
}  // namespace lockstep::optim
