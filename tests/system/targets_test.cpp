// SPDX-License-Identifier: BSD-3-Clause
// Trainings on images with several labels, with one or several real numbers, and on IDX files with transforms: they
// learn, and their bits depend neither on the number of ranks nor on a resume within an epoch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <random>

#include "checkpoints/store/store.hpp"
#include "report/files/metrics.hpp"
#include "support/archives.hpp"
#include "support/program.hpp"

namespace lockstep {
namespace targets_test {

using testing::ProgramResult;
using testing::run_ranks;
using testing::write_file;

constexpr int kSide = 16;

/// A square image with noise, on which rectangles are drawn.
class Canvas {
 public:
  Canvas(int channels, std::mt19937& random) : channels_(channels) {
    std::uniform_int_distribution<int> noise(60, 100);
    pixels_.resize(static_cast<std::size_t>(kSide * kSide * channels));
    for (char& pixel : pixels_) pixel = static_cast<char>(noise(random));
  }

  void fill(int channel, int left, int top, int width, int height, int value) {
    for (int y = top; y < top + height; ++y) {
      for (int x = left; x < left + width; ++x) {
        pixels_[static_cast<std::size_t>((y * kSide + x) * channels_ + channel)] = static_cast<char>(value);
      }
    }
  }

  const std::string& pixels() const { return pixels_; }
  std::string ppm() const { return "P6 16 16 255\n" + pixels_; }

 private:
  int channels_;
  std::string pixels_;
};

std::string big_endian(std::uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

class TargetsTest : public ::testing::Test {
 protected:
  /// Writes the images and lists of both splits. @param label  draws on a canvas and returns the label
  template <class Label>
  void write_lists(const Label& label) {
    std::mt19937 random(11);
    for (const auto& [split, size] : {std::pair{"train", 144}, std::pair{"val", 48}}) {
      std::ofstream list(folder_.path(std::string(split) + ".txt"));
      for (int i = 0; i < size; ++i) {
        Canvas canvas(3, random);
        const std::string target = label(canvas, random);
        const std::string name = split + std::to_string(i) + ".ppm";
        folder_.write(name, canvas.ppm());
        list << name << " " << target << "\n";
      }
    }
  }

  /// @param lines  further lines of section data
  void write_configuration(const std::string& lines) {
    folder_.write("run.ini", "[data]\n" + lines +
                                 "[model]\nname = cnn\nchannels = 8,16\nhidden = 32\n"
                                 "[train]\nglobal_batch_size = 24\nmax_epochs = 12\n"
                                 "[optim]\nname = adamw\nlr = 0.004\n[sched]\nrule = one_cycle\n[log]\nevery = 1\n");
  }
  std::string lists() const {
    return "name = list\npath = " + folder_.path("train.txt") + "\nval_path = " + folder_.path("val.txt") +
           "\ntransform = random_crop,size=16,padding=1\ntransform = normalize\n";
  }

  ProgramResult train(int ranks, const std::string& run, const std::string& more = "") const {
    const ProgramResult outcome =
        run_ranks(ranks, "--config=" + folder_.path("run.ini") + " --run.dir=" + folder_.path(run) + " " + more, 200);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    return outcome;
  }

  std::vector<double> series(const std::string& run, const std::string& key) const {
    std::vector<double> values;
    for (const auto& [step, value] : report::read_series(folder_.path(run) + "/metrics.jsonl", key)) {
      values.push_back(value);
    }
    return values;
  }
  double last(const std::string& run, const std::string& key) const {
    const std::vector<double> values = series(run, key);
    return values.empty() ? std::nan("") : values.back();
  }

  void expect_that_the_loss_falls(double factor) {
    const ProgramResult outcome = train(2, "learned");
    const std::vector<double> losses = series("learned", "loss");
    ASSERT_GT(losses.size(), 6U) << outcome.output;
    EXPECT_LT(losses.back(), factor * losses.front()) << outcome.output;
  }

  /// Nine steps of six per epoch, on 1 to 3 ranks and with a resume after the fourth.
  void expect_equal_bits() {
    const std::string few = "--train.lanes=6 --sched.rule=constant --ckpt.keep_best=0 ";
    const std::string all = few + "--train.max_steps=9 ";
    train(1, "one", all + "--data.workers=0");
    train(2, "two", all + "--data.workers=1");
    train(3, "three", all + "--data.workers=0");
    train(2, "parts", few + "--train.max_steps=4");
    train(3, "parts", all + "--resume=must");
    const auto losses = series("one", "loss");
    ASSERT_EQ(losses.size(), 9U);
    EXPECT_NE(losses[0], losses[6]);
    const std::string end = "/ckpt/step-000000000009";
    for (const char* const run : {"two", "three", "parts"}) {
      EXPECT_EQ(series(run, "loss"), losses) << run;
      EXPECT_EQ(last(run, "val/loss"), last("one", "val/loss")) << run;
      EXPECT_EQ(testing::differences(checkpoints::read(folder_.path(run) + end),
                                     checkpoints::read(folder_.path("one") + end)),
                "")
          << run;
    }
  }

  testing::TemporaryFolder folder_;
};

// Three objects, each present in about half of the images; some images have none.
TEST_F(TargetsTest, SeveralLabelsPerImage) {
  write_lists([](Canvas& canvas, std::mt19937& random) {
    std::string labels;
    for (int object = 0; object < 3; ++object) {
      if (random() % 2 == 0) continue;
      canvas.fill(object, 2 + static_cast<int>(random() % 4), 3 + static_cast<int>(random() % 4), 7, 6, 220);
      labels += (labels.empty() ? "" : ",") + std::to_string(object);
    }
    return labels.empty() ? std::string("-") : labels;
  });
  write_configuration(lists());
  expect_that_the_loss_falls(0.4);
  EXPECT_GT(last("learned", "val/label_f1"), 0.9);
  expect_equal_bits();
}

// The number is the height of a bar, from 0 to 12; a constant answer has an error of about 3.7.
TEST_F(TargetsTest, RealNumbers) {
  write_lists([](Canvas& canvas, std::mt19937& random) {
    const int height = static_cast<int>(random() % 13);
    canvas.fill(1, 4, 14 - height, 8, height, 220);
    return std::to_string(height) + ".0";
  });
  write_configuration(lists() + "target = real\n");
  expect_that_the_loss_falls(0.2);
  EXPECT_LT(last("learned", "val/rmse"), 2);
  expect_equal_bits();
}

// The numbers are the height of a bar, and its distance from the left.
TEST_F(TargetsTest, SeveralRealNumbers) {
  write_lists([](Canvas& canvas, std::mt19937& random) {
    const int height = static_cast<int>(random() % 13);
    const int left = static_cast<int>(random() % 13);
    canvas.fill(1, left, 14 - height, 4, height, 220);
    return std::to_string(height) + ".0," + std::to_string(left);
  });
  write_configuration(lists() + "target = real\n");
  expect_that_the_loss_falls(0.4);
  EXPECT_LT(last("learned", "val/rmse"), 3) << "a constant answer has an error of about 3.7";
  expect_equal_bits();
  const ProgramResult predicted =
      run_ranks(2, "predict --from " + folder_.path("learned") + " --predict.out=" + folder_.path("values.csv"));
  ASSERT_EQ(predicted.exit_code, 0) << predicted.output;
  const std::string table = testing::read_file(folder_.path("values.csv"));
  EXPECT_EQ(table.substr(0, table.find('\n')), "index,id,target_0,target_1,value_0,value_1");
}

// Twelve classes: the position of a bright column. The number of classes comes from the data.
TEST_F(TargetsTest, IdxFilesWithTransforms) {
  std::mt19937 random(5);
  for (const auto& [split, size] : {std::pair{"train", 144U}, std::pair{"t10k", 48U}}) {
    std::string images = std::string("\0\0\x08\x03", 4) + big_endian(size) + big_endian(kSide) + big_endian(kSide);
    std::string labels = std::string("\0\0\x08\x01", 4) + big_endian(size);
    for (unsigned i = 0; i < size; ++i) {
      Canvas canvas(1, random);
      canvas.fill(0, 2 + static_cast<int>(i % 12), 0, 1, kSide, 220);
      images += canvas.pixels();
      labels += static_cast<char>(i % 12);
    }
    folder_.write(std::string(split) + "-images-idx3-ubyte", images);
    folder_.write(std::string(split) + "-labels-idx1-ubyte", labels);
  }
  write_configuration("name = idx\npath = " + folder_.path() +
                      "\ntransform = vertical_flip\ntransform = normalize,mean=auto\n");
  expect_that_the_loss_falls(0.5);
  EXPECT_GT(last("learned", "val/accuracy"), 0.5);
  expect_equal_bits();
  const auto archive = checkpoints::read(folder_.path("one/ckpt/step-000000000009"));
  const std::vector<std::string> paths = archive.array_paths();
  EXPECT_TRUE(std::any_of(paths.begin(), paths.end(), [&](const std::string& path) {
    return path.starts_with("/model/params/") && archive.array(path).shape == std::vector<std::int64_t>{12, 32};
  }));
}

}  // namespace targets_test
}  // namespace lockstep
