// SPDX-License-Identifier: BSD-3-Clause
// Frequencies and ranges of what the random transforms draw, over 10^5 draws with a fixed seed. A frequency may deviate
// by five standard deviations.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "core/text/table.hpp"
#include "data/image/color.hpp"
#include "data/image/geometry.hpp"
#include "data/transforms/policies.hpp"
#include "data/transforms/transforms.hpp"

namespace lockstep::data {
namespace image_statistics_test {

constexpr int kDraws = 100'000;

std::unique_ptr<Transform> make(const std::string& line) {
  const auto parts = entry_parts(line);
  const TransformRow& row = find_row(builtin_transforms(), parts.front(), "line");
  Section options;
  for (const KeySpec& key : row.keys) options.declare(key);
  for (std::size_t i = 1; i < parts.size(); ++i) set_option(options, parts[i], "line");
  return row.make(options, {.channels = 3, .statistics = imagenet_statistics()});
}

template <class Use>
void for_each_draw(const std::string& line, ImageSize size, Use use) {
  const auto transform = make(line);
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    random::Sequence random(1, random::Stream::augment, i / 1000, i % 1000);
    use(*transform, transform->draw(random, size));
  }
}

void expect_frequency(int count, double probability, const std::string& what) {
  const double deviation = std::sqrt(kDraws * probability * (1 - probability));
  EXPECT_NEAR(count, kDraws * probability, 5 * deviation + 1e-9) << what;
}

TEST(ImageStatistics, Coins) {
  for (const char* name : {"horizontal_flip", "vertical_flip", "grayscale", "solarize", "invert", "equalize",
                           "autocontrast", "posterize", "sharpness", "gaussian_blur"}) {
    for (const double p : {0.0, 0.3, 1.0}) {
      int count = 0;
      for_each_draw(
          std::string(name) + ",p=" + number_text(p), {8, 8},
          [&](const Transform& transform, const Parameters& drawn) { count += !transform.text(drawn).empty(); });
      expect_frequency(count, p, name);
    }
  }
}

TEST(ImageStatistics, RandomCrop) {
  std::map<int, int> tops;
  std::map<int, int> lefts;
  for_each_draw("random_crop,size=32,padding=4", {32, 32}, [&](const Transform&, const Parameters& drawn) {
    ++tops[drawn.as<Box>().top];
    ++lefts[drawn.as<Box>().left];
  });
  for (const auto& counts : {tops, lefts}) {
    ASSERT_EQ(counts.size(), 9U);  // 0 to 8
    for (const auto& [offset, count] : counts) expect_frequency(count, 1.0 / 9, std::to_string(offset));
  }
}

TEST(ImageStatistics, RandomResizedCrop) {
  // Every attempt fits, so that area and ratio have the distributions of one attempt.
  const ImageSize size{1000, 1000};
  double areas = 0;
  double log_ratios = 0;
  for_each_draw("random_resized_crop,size=8,scale=0.1,0.4", size, [&](const Transform&, const Parameters& drawn) {
    const Box box = drawn.as<Box>();
    ASSERT_TRUE(box.top >= 0 && box.left >= 0 && box.top + box.height <= 1000 && box.left + box.width <= 1000);
    const double area = box.height * box.width / 1e6;
    const double ratio = static_cast<double>(box.width) / box.height;
    ASSERT_TRUE(area > 0.098 && area < 0.403) << area;  // limits, and rounding to pixels
    ASSERT_TRUE(ratio > 0.745 && ratio < 1.343) << ratio;
    areas += area;
    log_ratios += std::log(ratio);
  });
  EXPECT_NEAR(areas / kDraws, 0.25, 5 * 0.3 / std::sqrt(12.0 * kDraws) + 1e-4);
  EXPECT_NEAR(log_ratios / kDraws, 0, 5 * 0.576 / std::sqrt(12.0 * kDraws) + 1e-4);
}

TEST(ImageStatistics, ColorJitter) {
  std::map<std::array<std::int8_t, 4>, int> orders;
  int applied = 0;
  double brightness = 0;
  for_each_draw("color_jitter,brightness=0.4,contrast=0.2,0.9,hue=0.1,p=0.8", {8, 8},
                [&](const Transform&, const Parameters& drawn) {
                  const auto jitter = drawn.as<ColorJitter>();
                  if (!jitter.uses[0]) return;
                  ++applied;
                  ++orders[jitter.order];
                  ASSERT_FALSE(jitter.uses[2]);
                  ASSERT_TRUE(jitter.factors[0] >= 0.6 - 1e-7 && jitter.factors[0] < 1.4 + 1e-7);
                  ASSERT_TRUE(jitter.factors[1] >= 0.2 - 1e-7 && jitter.factors[1] < 0.9 + 1e-7);
                  ASSERT_TRUE(jitter.factors[3] >= -0.1 - 1e-7 && jitter.factors[3] < 0.1 + 1e-7);
                  brightness += jitter.factors[0];
                });
  expect_frequency(applied, 0.8, "p");
  EXPECT_EQ(orders.size(), 24U);
  for (const auto& [order, count] : orders) expect_frequency(count, 0.8 / 24, "order");
  EXPECT_NEAR(brightness / applied, 1, 5 * 0.8 / std::sqrt(12.0 * applied));
}

TEST(ImageStatistics, RotateAndAffine) {
  double degrees = 0;
  for_each_draw("rotate,degrees=-10,30", {8, 8}, [&](const Transform&, const Parameters& drawn) {
    const auto value = drawn.as<double>();
    ASSERT_TRUE(value >= -10 && value <= 30);
    degrees += value;
  });
  EXPECT_NEAR(degrees / kDraws, 10, 5 * 40 / std::sqrt(12.0 * kDraws));
  std::set<double> shifts;
  for_each_draw("affine,degrees=5,translate=0.1,0.2,scale=0.8,1.25,shear=3,4,-1,1", {20, 50},
                [&](const Transform&, const Parameters& drawn) {
                  const auto values = drawn.as<AffineParameters>();
                  shifts.insert(values.translate_x);
                  ASSERT_LE(std::abs(values.translate_y), 4);
                  ASSERT_TRUE(values.scale >= 0.799 && values.scale <= 1.2501);
                  ASSERT_TRUE(values.shear_x >= 3 && values.shear_x <= 4 && std::abs(values.shear_y) <= 1);
                });
  EXPECT_EQ(shifts.size(), 11U);  // -5 to 5 pixels
}

/// The ops that a policy drew. They begin with their number.
struct Ops {
  int count;
  std::array<DrawnOp, kMaxAugmentOps> ops;
};

std::string op_name(const DrawnOp& op) { return augment_ops()[static_cast<std::size_t>(op.op)].name; }

TEST(ImageStatistics, RandAugment) {
  std::map<std::string, int> counts;
  int rotations = 0;
  int negative = 0;
  for_each_draw("rand_augment", {32, 32}, [&](const Transform&, const Parameters& drawn) {
    const auto ops = drawn.as<Ops>();
    ASSERT_EQ(ops.count, 2);
    ++counts[op_name(ops.ops[0])];
    if (op_name(ops.ops[1]) != "Rotate") return;
    ++rotations;
    ASSERT_EQ(std::abs(ops.ops[1].argument), 9.0);
    negative += ops.ops[1].argument < 0;
  });
  EXPECT_EQ(counts.size(), 14U);
  for (const auto& [name, count] : counts) expect_frequency(count, 1.0 / 14, name);
  EXPECT_NEAR(negative, rotations / 2.0, 5 * std::sqrt(rotations / 4.0));
}

TEST(ImageStatistics, TrivialAugmentWide) {
  std::map<std::string, int> counts;
  std::map<double, int> thresholds;
  for_each_draw("trivial_augment_wide", {32, 32}, [&](const Transform&, const Parameters& drawn) {
    const auto ops = drawn.as<Ops>();
    ASSERT_EQ(ops.count, 1);
    ++counts[op_name(ops.ops[0])];
    if (op_name(ops.ops[0]) == "Solarize") ++thresholds[ops.ops[0].argument];
  });
  EXPECT_EQ(counts.size(), 14U);
  for (const auto& [name, count] : counts) expect_frequency(count, 1.0 / 14, name);
  EXPECT_EQ(thresholds.size(), 31U);
  for (const auto& [value, count] : thresholds) expect_frequency(count, 1.0 / 14 / 31, "bin");
}

TEST(ImageStatistics, AutoAugmentFollowsItsPolicy) {
  for (const std::string name : {"imagenet", "cifar10", "svhn"}) {
    std::map<std::string, int> counts;
    for_each_draw("auto_augment,policy=" + name, {32, 32}, [&](const Transform&, const Parameters& drawn) {
      const auto ops = drawn.as<Ops>();
      std::set<std::string> names;
      for (int i = 0; i < ops.count; ++i) names.insert(op_name(ops.ops[static_cast<std::size_t>(i)]));
      for (const std::string& op : names) ++counts[op];
    });
    std::map<std::string, double> expected;  // probability that an operation occurs
    for (const PolicyPair& pair : torchvision_policy(name)) {
      if (std::string(pair[0].op) == pair[1].op) {
        expected[pair[0].op] += (1 - (1 - pair[0].probability) * (1 - pair[1].probability)) / 25;
      } else {
        for (const PolicyStep& step : pair) expected[step.op] += step.probability / 25;
      }
    }
    for (const auto& [op, probability] : expected) expect_frequency(counts[op], probability, name + " " + op);
  }
}

TEST(ImageStatistics, TimmRandAugment) {
  std::map<std::string, int> counts;
  int applied = 0;
  int bicubic = 0;
  double sum = 0;
  double squares = 0;
  int rotations = 0;
  for_each_draw("rand_augment,timm=rand-m5-n3-mstd0.5-inc1", {32, 32}, [&](const Transform&, const Parameters& drawn) {
    const auto ops = drawn.as<Ops>();
    for (int i = 0; i < ops.count; ++i) {
      const DrawnOp& op = ops.ops[static_cast<std::size_t>(i)];
      ++applied;
      ++counts[op_name(op)];
      bicubic += op.filter == ResizeFilter::bicubic;
      if (op_name(op) != "timm Rotate") continue;
      const double level = std::abs(op.argument) / 3;
      ++rotations;
      sum += level;
      squares += (level - 5) * (level - 5);
    }
  });
  EXPECT_EQ(counts.size(), 15U);
  EXPECT_NEAR(applied, kDraws * 1.5, 5 * std::sqrt(kDraws * 0.75));
  EXPECT_NEAR(bicubic, applied / 2.0, 5 * std::sqrt(applied / 4.0));
  EXPECT_NEAR(sum / rotations, 5, 5 * 0.5 / std::sqrt(rotations));
  EXPECT_NEAR(squares / rotations, 0.25, 5 * 0.25 * std::sqrt(2.0 / rotations));  // variance of the level
  const AugmentConfig weighted = parse_timm_config("rand-n1-p1-tweights");
  counts.clear();
  for_each_draw("rand_augment,timm=rand-n1-p1-tweights", {32, 32},
                [&](const Transform&, const Parameters& drawn) { ++counts[op_name(drawn.as<Ops>().ops[0])]; });
  for (std::size_t i = 0; i < weighted.ops.size(); ++i) {
    expect_frequency(counts["timm " + weighted.ops[i]], weighted.weights[i], weighted.ops[i]);
  }
}

TEST(ImageStatistics, RandomErasing) {
  const auto transform = make("random_erasing,p=0.4,scale=0.1,0.2,value=pixel");
  int erased = 0;
  double sum = 0;
  double squares = 0;
  double values = 0;
  std::vector<float> image(64 * 64);
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    random::Sequence random(1, random::Stream::augment, i / 1000, i % 1000);
    const Parameters drawn = transform->draw(random, {64, 64});
    if (transform->text(drawn).empty()) continue;
    ++erased;
    if (erased > 200) continue;
    std::fill(image.begin(), image.end(), 1e9F);
    dynamic_cast<const TensorTransform&>(*transform).apply(FloatImage{image.data(), 1, {64, 64}}, drawn);
    int changed = 0;
    for (const float value : image) {
      if (value == 1e9F) continue;
      ++changed;
      sum += value;
      squares += value * value;
    }
    ASSERT_TRUE(changed > 64 * 64 * 0.09 && changed < 64 * 64 * 0.21) << changed;  // limits, and rounding to pixels
    values += changed;
  }
  expect_frequency(erased, 0.4, "p");
  EXPECT_NEAR(sum / values, 0, 5 / std::sqrt(values));
  EXPECT_NEAR(squares / values, 1, 5 * std::sqrt(2 / values));
}

}  // namespace image_statistics_test
}  // namespace lockstep::data
