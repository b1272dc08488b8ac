// SPDX-License-Identifier: BSD-3-Clause
#include "data/transforms/evaluation_lines.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include "data/transforms/pipeline.hpp"
#include "support/sentence.hpp"

namespace lockstep::data {
namespace evaluation_lines_test {

using testing::sentence_of;
using Lines = std::vector<std::string>;

Lines derived(const Lines& training) { return evaluation_lines(training, builtin_transforms(), "data.transform"); }

// torchvision resizes to 256 for a crop of 224, and to 232 for one of 203: 203 * 256 / 224.
TEST(EvaluationLinesTest, RandomCropsBecomeCentralOnes) {
  EXPECT_EQ(derived({"random_resized_crop,size=224", "horizontal_flip", "normalize"}),
            (Lines{"resize,size=256", "center_crop,size=224", "normalize"}));
  EXPECT_EQ(derived({"random_resized_crop,size=203,filter=bicubic,scale=0.4,1"}),
            (Lines{"resize,size=232,filter=bicubic", "center_crop,size=203"}));
  EXPECT_EQ(derived({"random_resized_crop,size=64,112"}), (Lines{"resize,size=128", "center_crop,size=64,112"}));
  EXPECT_EQ(derived({"random_crop,size=32,padding=4", "to_float"}), (Lines{"center_crop,size=32", "to_float"}));
  EXPECT_EQ(derived({"multi_crop,crops=2,6,sizes=224,96,scales=0.14,1,0.05,0.14", "normalize"}),
            (Lines{"resize,size=256", "center_crop,size=224", "normalize"}));
}

TEST(EvaluationLinesTest, FixedLinesStay) {
  const Lines fixed = {"resize,size=256", "center_crop,size=224", "normalize,mean=0.5,std=0.25"};
  EXPECT_EQ(derived(fixed), fixed);
  EXPECT_EQ(derived({}), Lines());
}

TEST(EvaluationLinesTest, OtherRandomLinesAreLeftOut) {
  Lines training;
  for (const TransformRow& row : builtin_transforms()) {
    if (row.is_random && row.name.find("crop") == std::string::npos) training.push_back(row.name);
  }
  EXPECT_GT(training.size(), 10U);
  EXPECT_EQ(derived(training), Lines());
}

// Whatever the images, all get one size.
TEST(EvaluationLinesTest, TheResultHasTheSizeOfTheCrop) {
  const Pipeline pipeline({.lines = derived({"random_resized_crop,size=12", "normalize"}), .is_training = false});
  EXPECT_EQ(pipeline.size(), (ImageSize{12, 12}));
}

/// Crops that no evaluation could know.
class AnySize : public PixelTransform {
 public:
  void apply(Image&, const Parameters&, Workspace&) const override {}
  std::optional<ImageSize> fixed_size(std::optional<ImageSize>) const override { return std::nullopt; }
};

TEST(EvaluationLinesTest, AnUnknownChangeOfTheSizeIsRefused) {
  std::vector<TransformRow> rows = builtin_transforms();
  rows.push_back({.name = "any_size", .help = "", .keys = {}, .is_random = true, .make = [](const auto&, const auto&) {
                    return std::make_unique<AnySize>();
                  }});
  EXPECT_EQ(
      sentence_of<ConfigError>([&] { evaluation_lines({"any_size"}, rows, "data.transform (a.ini:3)"); }),
      "data.transform (a.ini:3) 'any_size': any_size changes the size of images at random, so that the transforms "
      "of evaluated images cannot be derived from it; set data.val_transform");
  EXPECT_EQ(sentence_of<ConfigError>([] { derived({"random_resized_crop"}); }),
            "data.transform 'random_resized_crop': size is missing; add size=224, for example");
  EXPECT_EQ(sentence_of<ConfigError>([] { derived({"center_corp,size=3"}); }).substr(0, 43),
            "data.transform: 'center_corp' is unknown; c");
}

}  // namespace evaluation_lines_test
}  // namespace lockstep::data
