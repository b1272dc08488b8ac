// SPDX-License-Identifier: BSD-3-Clause
// Training on image files: tools/configs/photos.ini on real photographs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "checkpoints/store/store.hpp"
#include "report/files/metrics.hpp"
#include "support/archives.hpp"
#include "support/folders.hpp"
#include "support/program.hpp"

namespace lockstep {
namespace photos_test {

namespace fs = std::filesystem;
using testing::ProgramResult;
using testing::run_ranks;

std::string recipe() {
  const char* const source = std::getenv("LOCKSTEP_SOURCE_DIR");
  return "--config=" + std::string(source != nullptr ? source : ".") + "/tools/configs/photos.ini ";
}

double last(const std::string& run, const std::string& key) {
  const auto series = report::read_series(run + "/metrics.jsonl", key);
  return series.empty() ? -1 : series.back().second;
}

/// Paths of what differs between two stored checkpoints, "" when nothing does.
std::string differences(const std::string& a, const std::string& b) {
  return testing::differences(checkpoints::read(a), checkpoints::read(b));
}

class PhotosTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::is_directory(photos())) GTEST_SKIP() << "there is no " << photos();
  }

  static fs::path photos() { return testing::sample_data("photos"); }
  std::string with_photos() const {
    return recipe() + "--data.path=" + photos().string() + " --data.cache=" + folder_.path("cache") + " ";
  }
  std::string run_dir(const std::string& name) const { return "--run.dir=" + folder_.path(name) + " "; }

  testing::TemporaryFolder folder_;
};

// A linear model on the pixels reaches 0.48 after 40 epochs.
TEST_F(PhotosTest, TheRecipeLearns) {
  const bool is_long = testing::is_long_run();
  double sum = 0;
  const std::vector<std::string> seeds =
      is_long ? std::vector<std::string>{"1", "2", "3"} : std::vector<std::string>{"1"};
  for (const std::string& seed : seeds) {
    const ProgramResult outcome = run_ranks(
        2, with_photos() + run_dir(seed) + "--run.seed=" + seed + (is_long ? "" : " --train.max_epochs=8"), 600);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_NE(outcome.output.find("12 classes: astronaut, brick"), std::string::npos) << outcome.output;
    sum += last(folder_.path(seed), "val/accuracy");
  }
  EXPECT_GE(sum / static_cast<double>(seeds.size()), is_long ? 0.85 : 0.55);
}

/// Ten steps more than an epoch, evaluated at the end, without dependence on the number of ranks.
const std::string kShort =
    "--train.lanes=6 --train.max_steps=35 --log.every=1 --ckpt.every=5 "
    "--ckpt.keep_last=9 "
    "--model.channels=4,8 --model.hidden=16 ";
const std::string kEnd = "/ckpt/step-000000000035";

TEST_F(PhotosTest, BitsDoNotDependOnRanksSourceAndResume) {
  const std::string straight = folder_.path("straight");
  const ProgramResult first = run_ranks(1, with_photos() + run_dir("straight") + kShort, 120);
  ASSERT_EQ(first.exit_code, 0) << first.output;
  const auto losses = report::read_series(straight + "/metrics.jsonl", "loss");
  ASSERT_EQ(losses.size(), 35U);
  const auto expect_equal = [&](const std::string& name) {
    EXPECT_EQ(report::read_series(folder_.path(name) + "/metrics.jsonl", "loss"), losses) << name;
    EXPECT_EQ(last(folder_.path(name), "val/loss"), last(straight, "val/loss")) << name;
  };
  for (const int ranks : {2, 3}) {
    const std::string name = "ranks" + std::to_string(ranks);
    const std::string workers = "--data.workers=" + std::to_string(ranks - 2) + " ";
    const ProgramResult outcome = run_ranks(ranks, with_photos() + run_dir(name) + kShort + workers, 120);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    expect_equal(name);
    EXPECT_EQ(differences(folder_.path(name) + kEnd, straight + kEnd), "");
  }

  // The same images as lists, in the same order.
  for (const char* split : {"train", "val"}) {
    std::vector<std::string> classes;
    for (const auto& entry : fs::directory_iterator(photos() / split)) classes.push_back(entry.path().filename());
    std::sort(classes.begin(), classes.end());
    std::ofstream list(folder_.path(std::string(split) + ".txt"));
    for (std::size_t label = 0; label < classes.size(); ++label) {
      std::vector<std::string> files;
      for (const auto& entry : fs::directory_iterator(photos() / split / classes[label])) {
        files.push_back(entry.path().string());
      }
      std::sort(files.begin(), files.end());
      for (const std::string& file : files) list << file << "\t" << label << "\n";
    }
  }
  const ProgramResult listed =
      run_ranks(2,
                recipe() + run_dir("listed") + kShort + "--data.name=list --data.path=" + folder_.path("train.txt") +
                    " --data.val_path=" + folder_.path("val.txt"),
                120);
  ASSERT_EQ(listed.exit_code, 0) << listed.output;
  expect_equal("listed");

  // Killed within an epoch, soon after the checkpoint of step 10 exists.
  const std::string killed = folder_.path("killed");
  const std::string script = testing::mpirun_command(2) + " " + testing::trainer_program() + " " + with_photos() +
                             run_dir("killed") + kShort + "& job=$!; while kill -0 $job && [ ! -e " + killed +
                             "/ckpt/step-000000000010 ]; do sleep 0.02; done; " +
                             "for p in $(pgrep -x trainer); do if grep -qa -e '--run.dir=" + killed +
                             "' /proc/$p/cmdline; then kill -9 $p; fi; done; wait $job";
  EXPECT_NE(testing::run_shell(script, 120).exit_code, 0);
  const ProgramResult resumed = run_ranks(3, with_photos() + run_dir("killed") + kShort + "--resume=auto", 120);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_NE(resumed.output.find("resumed at step"), std::string::npos) << resumed.output;
  expect_equal("killed");
  EXPECT_EQ(differences(killed + kEnd, straight + kEnd), "");
}

}  // namespace photos_test
}  // namespace lockstep
