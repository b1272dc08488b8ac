// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/interop/input_statistics.hpp"

#include <gtest/gtest.h>

#include <cmath>

// The sizes and values that images get.
namespace lockstep::testing {
namespace input_statistics_test {

using namespace checkpoints;
using Config = std::map<std::string, std::string>;

TEST(InputStatisticsTest, TransformsOfEvaluations) {
  const InputStatistics input = input_statistics(
      {{"data.val_transform",
        "resize,size=256,filter=bicubic\ncenter_crop,size=224\nnormalize,mean=0.5,std=0.25,0.5,0.125"}},
      3);
  EXPECT_EQ(input.mean, (std::vector<double>{0.5, 0.5, 0.5}));
  EXPECT_EQ(input.deviation, (std::vector<double>{0.25, 0.5, 0.125}));
  EXPECT_EQ(input.interpolation, "bicubic");
  EXPECT_EQ(input.crop_fraction, 0.875);
  EXPECT_TRUE(input.remarks.empty());
}

// Checkpoints of earlier versions have lists with slashes and another spelling.
TEST(InputStatisticsTest, LinesOfEarlierVersions) {
  const InputStatistics input = input_statistics({{"data.val_transform", "normalize,mean=0.5,0.25,0.75,std=0.25"}}, 3);
  EXPECT_EQ(input.mean, (std::vector<double>{0.5, 0.25, 0.75}));
  EXPECT_EQ(input.deviation, (std::vector<double>{0.25, 0.25, 0.25}));
  EXPECT_TRUE(input.remarks.empty());
}

// timm computes the size of the resized image by truncation.
TEST(InputStatisticsTest, TheResizedImageHasTheSameSize) {
  for (int crop = 8; crop < 300; crop += 7) {
    for (int resized = crop; resized < crop + 60; ++resized) {
      const InputStatistics input =
          input_statistics({{"data.val_transform", "resize,size=" + std::to_string(resized) +
                                                       "\ncenter_crop,size=" + std::to_string(crop) + "\nnormalize"}},
                           3);
      ASSERT_EQ(std::floor(crop / input.crop_fraction), resized) << crop;
    }
  }
}

TEST(InputStatisticsTest, DefaultsOfTheSources) {
  EXPECT_EQ(input_statistics({{"data.name", "folder"}}, 3).mean, (std::vector<double>{0.485, 0.456, 0.406}));
  EXPECT_EQ(input_statistics({{"data.name", "folder"}}, 1).mean, (std::vector<double>{0.449}));
  EXPECT_EQ(input_statistics({{"data.name", "idx"}}, 1).mean, (std::vector<double>{0.1307}));
  EXPECT_EQ(input_statistics({{"data.name", "idx"}}, 1).deviation, (std::vector<double>{0.3081}));
  const Config only_train = {{"data.transform", "horizontal_flip\nto_float"}, {"data.val_transform", ""}};
  EXPECT_EQ(input_statistics(only_train, 3).mean, (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(input_statistics(only_train, 3).deviation, (std::vector<double>{1, 1, 1}));
}

TEST(InputStatisticsTest, NormalizationInTheModel) {
  const InputStatistics input = input_statistics({{"data.transform", "normalize,mean=0.5,std=0.25"},
                                                  {"model.preprocess", "image"},
                                                  {"model.image_mean", "1, 2"},
                                                  {"model.image_std", "2"}},
                                                 2);
  EXPECT_EQ(input.mean, (std::vector<double>{0.75, 1}));  // ((x - 0.5) / 0.25 - 1) / 2 = (x - 0.75) / 0.5
  EXPECT_EQ(input.deviation, (std::vector<double>{0.5, 0.5}));
}

TEST(InputStatisticsTest, WhatTheRunMeasuredStandsForAuto) {
  const MeasuredStatistics measured{.mean = {0.1, 0.2, 0.3}, .deviation = {0.4, 0.5, 0.6}};
  const InputStatistics input = input_statistics({{"data.transform", "normalize,mean=auto"}}, 3, measured);
  EXPECT_EQ(input.mean, measured.mean);
  EXPECT_EQ(input.deviation, measured.deviation);
  EXPECT_TRUE(input.remarks.empty());
  EXPECT_EQ(input_statistics({{"data.transform", "normalize"}}, 3, measured).mean[0], 0.485);
  EXPECT_TRUE(input_statistics({{"data.transform", "normalize,mean=auto"}}, 1, measured).mean.empty());
}

TEST(InputStatisticsTest, WhatIsUnknownIsSaid) {
  const InputStatistics measured = input_statistics({{"data.transform", "normalize,mean=auto"}}, 3);
  EXPECT_TRUE(measured.mean.empty());
  ASSERT_EQ(measured.remarks.size(), 1U);
  EXPECT_NE(measured.remarks[0].find("mean=auto"), std::string::npos);
  const InputStatistics other = input_statistics({{"data.val_transform", "pad,padding=2\nnormalize"}}, 3);
  EXPECT_EQ(other.mean.size(), 3U);
  ASSERT_EQ(other.remarks.size(), 1U);
  EXPECT_NE(other.remarks[0].find("pad"), std::string::npos);
}

}  // namespace input_statistics_test
}  // namespace lockstep::testing
