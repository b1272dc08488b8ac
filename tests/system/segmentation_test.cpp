// SPDX-License-Identifier: BSD-3-Clause
// tools/configs/unet.ini on images and masks that this test draws: bright discs (class 1) and dark squares (class 2).
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <random>

#include "checkpoints/store/store.hpp"
#include "report/files/metrics.hpp"
#include "support/archives.hpp"
#include "support/program.hpp"

namespace lockstep {
namespace segmentation_test {

using testing::ProgramResult;
using testing::run_ranks;

constexpr int kSide = 40;

/// One image with a disc and a square on noise, as PPM, and its mask, as PGM.
void draw(const std::string& image, const std::string& mask, std::mt19937& random) {
  const auto uniform = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  const int x = uniform(8, 31), y = uniform(8, 31), radius = uniform(4, 8);
  const int left = uniform(0, 28), top = uniform(0, 28), side = uniform(6, 12);
  std::string pixels, classes;
  for (int row = 0; row < kSide; ++row) {
    for (int column = 0; column < kSide; ++column) {
      const int dx = column - x, dy = row - y;
      const bool in_disc = dx * dx + dy * dy <= radius * radius;
      const bool in_square = column >= left && column < left + side && row >= top && row < top + side;
      classes += static_cast<char>(in_disc ? 1 : in_square ? 2 : 0);
      for (int channel = 0; channel < 3; ++channel) {
        pixels += static_cast<char>((in_disc ? 190 : in_square ? 30 : 100) + uniform(-25, 25));
      }
    }
  }
  const std::string size = std::to_string(kSide) + " " + std::to_string(kSide) + "\n255\n";
  testing::write_file(image, "P6\n" + size + pixels);
  testing::write_file(mask, "P5\n" + size + classes);
}

class SegmentationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::mt19937 random(7);
    for (const auto& [split, size] : {std::pair{"train", 96}, std::pair{"val", 24}}) {
      std::ofstream list(folder_.path(std::string(split) + ".txt"));
      for (int i = 0; i < size; ++i) {
        const std::string name = std::string(split) + std::to_string(i);
        draw(folder_.path(name + ".ppm"), folder_.path(name + ".pgm"), random);
        list << name << ".ppm " << name << ".pgm\n";
      }
    }
  }

  std::string arguments(const std::string& run) const {
    const char* const source = std::getenv("LOCKSTEP_SOURCE_DIR");
    return "--config=" + std::string(source != nullptr ? source : ".") +
           "/tools/configs/unet.ini --data.path=" + folder_.path("train.txt") +
           " --data.val_path=" + folder_.path("val.txt") + " --run.dir=" + folder_.path(run) + " ";
  }

  testing::TemporaryFolder folder_;
};

// The best constant answer without learning (background) has a mean IoU of less than 0.3.
TEST_F(SegmentationTest, TheRecipeFindsTheObjects) {
  const ProgramResult outcome = run_ranks(2, arguments("learned"), 300);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  const auto iou = report::read_series(folder_.path("learned") + "/metrics.jsonl", "val/miou");
  ASSERT_FALSE(iou.empty()) << outcome.output;
  EXPECT_GE(iou.back().second, 0.9) << outcome.output;
}

TEST_F(SegmentationTest, BitsDoNotDependOnRanksAndResume) {
  const std::string few =
      "--train.lanes=4 --ckpt.every=4 --log.every=1 --model.norm=group "
      "--sched.name=constant ";
  const std::string end = "/ckpt/step-000000000009";
  ASSERT_EQ(run_ranks(1, arguments("one") + few + "--train.max_steps=9", 120).exit_code, 0);
  const ProgramResult two = run_ranks(2, arguments("two") + few + "--train.max_steps=9 --data.workers=1", 120);
  ASSERT_EQ(two.exit_code, 0) << two.output;
  ASSERT_EQ(run_ranks(2, arguments("parts") + few + "--train.max_steps=4", 120).exit_code, 0);
  const ProgramResult resumed = run_ranks(1, arguments("parts") + few + "--train.max_steps=9 --resume=auto", 120);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  for (const char* const run : {"two", "parts"}) {
    EXPECT_EQ(
        testing::differences(checkpoints::read(folder_.path(run) + end), checkpoints::read(folder_.path("one") + end)),
        "")
        << run;
  }
}

}  // namespace segmentation_test
}  // namespace lockstep
