// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/metrics/meter.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <map>

#include "metrics/meters.hpp"
#include "support/sentence.hpp"

namespace lockstep::metrics {
namespace field_meters_test {

using testing::sentence_of;
using Named = std::map<std::string, double>;

/// Two channels of two rows of latitudes and two columns.
Task task_of(std::int64_t channels = 2) {
  return {.sample_shape = {channels, 2, 2},
          .classes = channels,
          .kind = TaskKind::regression,
          .fields = {.channels = {"u", "v"}, .axes = {"lat", "lon"}, .coordinates = {{0, 60}, {0, 1}}}};
}

Meters one_meter(const std::string& text, const Task& task = task_of()) {
  return Meters({make_meter(text, task, "test")});
}

Named read(const Meters& meters) {
  const auto readings = meters.read().numbers;
  return {readings.begin(), readings.end()};
}

Named read(const std::string& text, const Samples& samples, const Task& task = task_of()) {
  Meters meters = one_meter(text, task);
  meters.add(samples);
  return read(meters);
}

/// One sample [1, 2, 2, 2] with the target 0.
Samples errors(const std::vector<double>& values) {
  const at::Tensor prediction = torch::tensor(values, at::kDouble).view({1, -1, 2, 2});
  return samples_of(prediction, at::zeros_like(prediction), 0);
}

TEST(FieldMetersTest, EachChannelHasItsNumbers) {
  const Named found = read("field", errors({1, -1, 1, -1, 0, 0, 0, 4}));
  EXPECT_EQ(found, (Named{{"rmse/u", 1},
                          {"rmse/v", 2},
                          {"mae/u", 1},
                          {"mae/v", 1},
                          {"max/u", 1},
                          {"max/v", 4},
                          {"bias/u", 0},
                          {"bias/v", 1}}));
}

// The newest input has gaps at other points than the target.
TEST(FieldMetersTest, PersistenceCountsPointsThatItKnows) {
  Samples samples = errors({0, 0, 0, 0, 0, 0, 0, 0});
  samples.fields["persistence"] = {3, std::nan(""), 3, 3, 1, 7, std::nan(""), std::nan("")};
  EXPECT_EQ(read("persistence", samples), (Named{{"persistence_rmse/u", 3}, {"persistence_rmse/v", 5}}));
}

// Relative errors have no unit, and the channel v has none in the files.
TEST(FieldMetersTest, ErrorsHaveTheUnitOfTheirChannel) {
  Task task = task_of();
  task.fields.units = {"K", ""};
  std::map<std::string, std::string> units;
  for (const char* text : {"field", "persistence", "well", "pdebench", "acc"}) {
    for (const Result& result : make_meter(text, task, "test").results) {
      if (!result.unit.empty()) units[result.name] = result.unit;
    }
  }
  EXPECT_EQ(units, (std::map<std::string, std::string>{{"rmse/u", "K"},
                                                       {"mae/u", "K"},
                                                       {"max/u", "K"},
                                                       {"bias/u", "K"},
                                                       {"persistence_rmse/u", "K"},
                                                       {"pdebench_rmse/u", "K"}}));
  task.fields.units.clear();
  for (const Result& result : make_meter("field", task, "test").results) EXPECT_EQ(result.unit, "") << result.name;
}

// The root of the mean square over samples is not the mean of the roots, which is 2 here.
TEST(FieldMetersTest, SquaresAreAveragedBeforeTheRoot) {
  Meters meters = one_meter("field");
  meters.add(errors({1, 1, 1, 1, 0, 0, 0, 0}));
  meters.add(errors({3, 3, 3, 3, 0, 0, 0, 0}));
  EXPECT_EQ(read(meters).at("rmse/u"), std::sqrt(5));
}

// Channels of later steps follow those of the first, and have the same names.
TEST(FieldMetersTest, StepsShareTheirNames) {
  const Named found = read("field", errors({1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4}), task_of(4));
  EXPECT_EQ(found.at("mae/u"), 2);
  EXPECT_EQ(found.at("mae/v"), 3);
  EXPECT_EQ(found.at("max/u"), 3);
}

// The rows of 0 and 60 degrees have the edges -30, 30 and 90: areas 1 and 1/2. Their cosines are 1 and 1/2, too.
TEST(FieldMetersTest, RowsWeighAsTheirArea) {
  const Samples samples = errors({1, 1, 4, 4, 0, 0, 0, 0});
  EXPECT_NEAR(read("field,area=true", samples).at("mae/u"), 2, 1e-15);
  EXPECT_NEAR(read("field,area=cosine", samples).at("mae/u"), 2, 1e-15);
  EXPECT_EQ(read("field", samples).at("mae/u"), 2.5);
  EXPECT_NEAR(read("field,area=caps", samples).at("mae/u"), (1.5 * 1 + 0.5 * 4) / 2, 1e-15);  // edges -90, 30, 90
}

// Values beside the mask can be anything. The mask holds for both channels of the second sample.
TEST(FieldMetersTest, GapsDoNotCount) {
  const double nan = std::nan("");
  Samples first = errors({1, 2, 3, nan, 5, 5, 5, 5});
  first.fields["mask"] = {1, 1, 1, 0, 0, 0, 0, 1};
  const Named found = read("field", first);
  EXPECT_EQ(found.at("mae/u"), 2);
  EXPECT_EQ(found.at("max/u"), 3);
  EXPECT_EQ(found.at("rmse/v"), 5);
  EXPECT_NEAR(read("field,area=true", first).at("mae/u"), (1 + 2 + 0.5 * 3) / 2.5, 1e-15);
  first.fields["mask"].assign(8, 0);
  for (const auto& [name, value] : read("field", first)) EXPECT_TRUE(std::isnan(value)) << name;
  for (const auto& [name, value] : read("well", first)) EXPECT_TRUE(std::isnan(value)) << name;
}

TEST(FieldMetersTest, MaximaAreThoseOfAllRanks) {
  Meters first = one_meter("field");
  Meters second = first;
  first.add(errors({1, -7, 0, 0, 2, 0, 0, 0}));
  second.add(errors({3, 0, 0, 0, 5, 0, 0, 0}));
  const std::vector<std::int64_t> maxima = first.take_maxima();
  EXPECT_EQ(maxima.size(), 2U);
  EXPECT_EQ(read(first).at("max/u"), 0);
  first.put_maxima(maxima);
  first.merge(second);
  EXPECT_EQ(read(first).at("max/u"), 7);
  EXPECT_EQ(read(first).at("max/v"), 5);
  second.add(errors({std::nan(""), 0, 0, 0, 0, 0, 0, 0}));
  first.merge(second);
  EXPECT_TRUE(std::isnan(read(first).at("max/u")));
}

TEST(FieldMetersTest, TheClimatologyIsAValueOfTheBatch) {
  const Meter meter = make_meter("acc,climatology=usual", task_of(), "test");
  EXPECT_EQ(meter.reads.fields, (std::vector<std::string>{"usual"}));
  EXPECT_EQ(meter.reads.optional_fields, (std::vector<std::string>{"mask"}));
  EXPECT_TRUE(meter.results.front().is_higher_better);
  const at::Tensor target = torch::arange(8, at::kDouble).view({1, 2, 2, 2});
  const at::Tensor usual = torch::full({1, 2, 1, 1}, 3, at::kDouble);
  Samples samples = samples_of(usual + 2 * (target - usual), target, 0);
  samples.fields["usual"] = field_of("usual", usual, target);
  EXPECT_NEAR(read("acc,climatology=usual", samples).at("acc/v"), 1, 1e-15);
}

TEST(FieldMetersTest, ValuesOfTheBatchHaveTheSizesOfTheTargets) {
  const at::Tensor target = torch::zeros({2, 3, 4});
  EXPECT_EQ(field_of("mask", torch::tensor({1, 0}).view({2, 1, 1}), target).size(), 24U);
  for (const at::Tensor& wrong : {torch::zeros({2, 3}), torch::zeros({1, 3, 4}), torch::zeros({2, 3, 2})}) {
    EXPECT_THROW(field_of("mask", wrong, target), DataError);
  }
  EXPECT_EQ(sentence_of<DataError>([&] {
              field_of("mask", torch::zeros({2, 4}), target);
            }),
            "the value mask of the batch has the shape [2, 4], the targets [2, 3, 4]; it needs the sizes of the "
            "targets, or 1 in place of others than the first");
}

TEST(FieldMetersTest, SamplesThatDoNotFitAreRefused) {
  const auto refusal = [](const std::string& text, const Samples& samples) {
    return sentence_of<DataError>([&] { read(text, samples); });
  };
  EXPECT_EQ(refusal("field", errors({1, 2, 3, 4})),
            "field needs outputs and targets [N, 2, space...], not samples with 4 outputs and 4 targets in 1 channels");
  const at::Tensor tall = torch::zeros({1, 2, 3, 2});
  EXPECT_EQ(refusal("field,area=true", samples_of(tall, tall, 0)),
            "field,area: the targets do not have 2 latitudes along axis 0 of space; use area=false");
  EXPECT_EQ(refusal("spectral", samples_of(tall, tall, 0)),
            "spectral needs targets with the axes of space of the inputs; choose another metric");
  Samples gaps = errors({0, 0, 0, 0, 0, 0, 0, 0});
  gaps.fields["mask"] = {1, 1, 1, 1, 1, 1, 1, 1};
  EXPECT_EQ(read("pdebench", gaps).at("pdebench_rmse"), 0);
  gaps.fields["mask"].back() = 0;
  EXPECT_EQ(refusal("pdebench", gaps),
            "pdebench needs fields without gaps, but the value mask of the batch has zeros; use field or well");
}

TEST(FieldMetersTest, TasksThatDoNotFitAreRefused) {
  const auto refusal = [](const std::string& text, const Task& task) {
    return sentence_of<ConfigError>([&] { make_meter(text, task, "eval.metrics"); });
  };
  Task flat = task_of();
  flat.sample_shape = {2};
  EXPECT_EQ(
      refusal("pdebench", flat),
      "eval.metrics: pdebench: pdebench needs samples [C, space...] with 1 to 3 axes of space; the samples of the "
      "task have 1 dimensions");
  EXPECT_EQ(refusal("field", task_of(3)),
            "eval.metrics: field: the targets have 3 channels, but there are names for 2; set the option classes");
  EXPECT_EQ(
      refusal("field,area=true", Task{.classes = 2}),
      "eval.metrics: field: area: no axis of the fields has latitudes as coordinates (it is called lat or latitude, or "
      "has the unit degrees_north); use false");
}

}  // namespace field_meters_test
}  // namespace lockstep::metrics
