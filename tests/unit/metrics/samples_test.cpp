// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/metrics/meter.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

namespace lockstep::metrics {
namespace samples_test {

using Shape = std::vector<std::int64_t>;

struct ShapeCase {
  Shape output;
  Shape target;
  std::size_t size;
  std::size_t outputs;
  std::size_t targets;
};

TEST(SamplesTest, FollowTheShapesOfABatch) {
  const std::vector<ShapeCase> cases = {
      {{4, 3}, {4}, 4, 3, 1},               // classes
      {{4, 3}, {4, 1}, 4, 3, 1},            // blocks in a column
      {{4, 3}, {4, 3}, 4, 3, 3},            // labels, or several outputs
      {{4}, {4}, 4, 1, 1},                  // one output
      {{4, 8}, {4, 3}, 4, 8, 3},            // features, and who they are
      {{2, 5, 3}, {2, 5}, 10, 3, 1},        // text
      {{2, 3, 4, 5}, {2, 4, 5}, 40, 3, 1},  // images
      {{0, 3}, {0}, 0, 0, 0},
  };
  for (const ShapeCase& one : cases) {
    const Samples samples = samples_of(torch::zeros(one.output), torch::zeros(one.target, torch::kLong), 7);
    EXPECT_EQ(samples.size(), one.size);
    EXPECT_EQ(samples.output_columns, one.outputs);
    EXPECT_EQ(samples.target_columns, one.targets);
    EXPECT_EQ(samples.outputs.size(), one.size * one.outputs);
    EXPECT_EQ(samples.targets.size(), one.size * one.targets);
  }
}

TEST(SamplesTest, NumberPredictionsByTheirSample) {
  const Samples text = samples_of(torch::zeros({2, 3, 5}), torch::zeros({2, 3}, torch::kLong), 4);
  EXPECT_EQ(text.indices, (Shape{12, 13, 14, 15, 16, 17}));
}

// The classes of an image lie in the second dimension, so those of one pixel are apart in memory.
TEST(SamplesTest, TakeThePixelsOfPictures) {
  const at::Tensor output = torch::arange(12).reshape({1, 3, 2, 2});
  const Samples samples = samples_of(output, torch::tensor({{{0L, 1L}, {2L, 0L}}}), 0);
  EXPECT_EQ(samples.outputs, (std::vector<double>{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11}));
  EXPECT_EQ(samples.targets, (std::vector<double>{0, 1, 2, 0}));
}

TEST(SamplesTest, RefuseShapesThatDoNotFit) {
  const std::vector<std::pair<Shape, Shape>> wrong = {{{4, 3}, {5}}, {{4, 3}, {5, 3}}, {{}, {4}}, {{4, 3, 2, 2}, {4}}};
  for (const auto& [output, target] : wrong) {
    EXPECT_THROW(samples_of(torch::zeros(output), torch::zeros(target), 0), DataError);
  }
}

TEST(SamplesTest, AreGatheredByIndexAndTakenOnce) {
  const auto one = [](std::int64_t index, double output) {
    return pack(
        {.indices = {index}, .outputs = {output, -output}, .targets = {1}, .output_columns = 2, .target_columns = 1});
  };
  const std::vector<std::vector<std::byte>> parts = {one(5, 50), {}, one(2, 20), one(5, 99), one(0, 10)};
  const Samples samples = unpack(parts);
  EXPECT_EQ(samples.indices, (Shape{0, 2, 5}));
  EXPECT_EQ(samples.outputs, (std::vector<double>{10, -10, 20, -20, 50, -50}));
  EXPECT_EQ(samples.output_columns, 2U);
  EXPECT_EQ(unpack({}).size(), 0U);
  EXPECT_TRUE(pack({}).empty());
}

TEST(SamplesTest, KeepTheirNumbersAndTexts) {
  const auto one = [](std::int64_t index, const std::string& file, double area) {
    return pack({.indices = {index},
                 .outputs = {1},
                 .targets = {1},
                 .output_columns = 1,
                 .target_columns = 1,
                 .values = {{"area", {area}}, {"file", {file}}}});
  };
  const Samples samples = unpack(std::vector{one(3, "three.png", 9.5), {}, one(1, "", -1), one(3, "again", 0)});
  EXPECT_EQ(samples.indices, (Shape{1, 3}));
  EXPECT_EQ(samples.values.at("file"), (std::vector<SampleValue>{"", "three.png"}));
  EXPECT_EQ(samples.values.at("area"), (std::vector<SampleValue>{-1.0, 9.5}));
  EXPECT_EQ(samples.values.size(), 2U);
}

TEST(SamplesTest, OfDifferentWidthAreNotGathered) {
  const auto narrow = pack({.indices = {0}, .outputs = {1}, .targets = {1}, .output_columns = 1, .target_columns = 1});
  const auto wide = pack({.indices = {1}, .outputs = {1, 2}, .targets = {1}, .output_columns = 2, .target_columns = 1});
  EXPECT_THROW(unpack(std::vector{narrow, wide}), DataError);
}

TEST(SamplesTest, ClassesAreWholeNumbersInRange) {
  EXPECT_EQ(class_of(2, 3), 2);
  EXPECT_EQ(class_of(-100, 3), kIgnored);
  EXPECT_EQ(class_of(255, 3, 255), kIgnored);
  for (const double wrong : {3.0, -1.0, 0.5, std::nan("")}) EXPECT_THROW(class_of(wrong, 3), DataError) << wrong;
  EXPECT_EQ(label_of(-1), -1);
  for (const double wrong : {2.0, 0.5, -100.0, std::nan("")}) EXPECT_THROW(label_of(wrong), DataError) << wrong;
}

TEST(SamplesTest, OfEqualScoresTheFirstIsHigher) {
  const double nan = std::nan("");
  EXPECT_EQ(best_class(std::vector<double>{1, 3, 3}), 1U);
  EXPECT_EQ(best_class(std::vector<double>{nan, -5, nan}), 1U);
  EXPECT_EQ(place_of(std::vector<double>{3, 3, 4}, 1), 2U);
  EXPECT_EQ(place_of(std::vector<double>{3, 3, 4}, 0), 1U);
  EXPECT_EQ(place_of(std::vector<double>{nan, 1, nan}, 2), 2U);
}

TEST(SamplesTest, SoftmaxOfLargeScoresIsFinite) {
  std::vector<double> scores = {1000, 1000};
  softmax(scores);
  EXPECT_EQ(scores, (std::vector<double>{0.5, 0.5}));
}

}  // namespace samples_test
}  // namespace lockstep::metrics
