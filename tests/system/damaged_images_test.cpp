// SPDX-License-Identifier: BSD-3-Clause
// Images that are damaged, deleted or changed, before a run or during it, on several ranks.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <thread>

#include "checkpoints/store/store.hpp"
#include "report/files/metrics.hpp"
#include "support/archives.hpp"
#include "support/program.hpp"

namespace lockstep {
namespace damaged_images_test {

namespace fs = std::filesystem;
using testing::ProgramResult;
using testing::run_ranks;

double last(const std::string& run, const std::string& key) {
  const auto series = report::read_series(run + "/metrics.jsonl", key);
  return series.empty() ? -1 : series.back().second;
}

/// A PPM file of one color.
std::string ppm(int value, int side = 8) {
  const std::string size = std::to_string(side);
  return "P6 " + size + " " + size + " 255\n" +
         std::string(static_cast<std::size_t>(side * side * 3), static_cast<char>(value));
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t position = text.find(part); position != std::string::npos; position = text.find(part, position + 1))
    ++count;
  return count;
}

bool becomes_true(const std::function<bool()>& is_true, double limit_s = 60) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(limit_s);
  while (!is_true()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

/// Two classes of 24 images each.
class DamagedImagesTest : public ::testing::Test {
 protected:
  DamagedImagesTest() {
    for (int i = 0; i < 48; ++i) {
      fs::create_directories(folder_ / (i % 2 == 0 ? "images/a" : "images/b"));
      folder_.write(name_of(i), ppm(3 * i));
    }
  }

  static std::string name_of(int i) { return (i % 2 == 0 ? "images/a/" : "images/b/") + std::to_string(i) + ".ppm"; }

  /// Writes a list of all images. @return  the options that use it
  std::string listed() const {
    std::ofstream list(folder_.path("train.txt"));
    for (int i = 0; i < 48; ++i) list << name_of(i) << " " << i % 2 << "\n";
    return "--data.name=list --data.path=" + folder_.path("train.txt") + " ";
  }

  ProgramResult train(int ranks, const std::string& more, const std::string& run = "run") const {
    return run_ranks(ranks,
                     "--data.name=folder --data.cache=off --data.path=" + folder_.path("images") +
                         " --data.val_fraction=0.25 --model.channels=4 --model.hidden=8 --train.global_batch_size=12 "
                         "--log.every=1 --run.dir=" +
                         folder_.path(run) + " " + more,
                     120);
  }

  /// Starts a run without end and calls `change` after its first steps. Where `is_done` is given, waits for it and
  /// requests the end of the run, which otherwise must end by itself.
  ProgramResult change_during_the_run(const std::string& more, const std::function<void()>& change,
                                      const std::function<bool()>& is_done = nullptr) const {
    auto job = std::async(std::launch::async, [&] {
      return train(2, "--data.val_fraction=0 --eval.every=never --train.max_epochs=1000000 --data.workers=1 " + more);
    });
    const std::string metrics = "run/metrics.jsonl";
    EXPECT_TRUE(becomes_true([&] { return folder_.read(metrics).find("\"loss\"") != std::string::npos; }));
    change();
    if (is_done) {
      EXPECT_TRUE(becomes_true(is_done));
      folder_.write("run/STOP", "");
    }
    return job.get();
  }

  testing::TemporaryFolder folder_;
};

TEST_F(DamagedImagesTest, ADamagedImageEndsTheRun) {
  folder_.write("images/a/4.ppm", "P6 8 8 255\ncut");
  folder_.write("images/b/5.ppm", "P6 8 8 255\ncut");
  const ProgramResult outcome = train(2, "--data.check=full --train.max_epochs=1");
  EXPECT_EQ(outcome.rank_codes, (std::vector<int>{3, 3})) << outcome.output;
  EXPECT_NE(outcome.output.find("images/"), std::string::npos);
  const ProgramResult unchecked = train(2, "--data.check=off --train.max_epochs=4");
  EXPECT_EQ(unchecked.exit_code, 3) << unchecked.output;
  EXPECT_NE(unchecked.output.find(".ppm: "), std::string::npos) << unchecked.output;
}

TEST_F(DamagedImagesTest, ADamagedImageIsReplacedAndListed) {
  folder_.write("images/a/4.ppm", "P6 8 8 255\ncut");
  folder_.write("images/b/5.ppm", "P6 8 8 255\ncut");
  const ProgramResult outcome = train(2, "--data.on_error=replace --train.max_epochs=4");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  const std::string bad = folder_.read("run/bad_samples.txt");
  EXPECT_NE(bad.find("a/4.ppm\n"), std::string::npos) << bad;
  EXPECT_NE(bad.find("b/5.ppm\n"), std::string::npos) << bad;
  EXPECT_EQ(bad.size(), 16U) << bad;
  EXPECT_EQ(last(folder_.path("run"), "data_errors"), 2);
  EXPECT_NE(outcome.output.find("replaces a sample: " + folder_.path("images/a/4.ppm")), std::string::npos);
  const std::string page = folder_.read("run/report.html");
  EXPECT_NE(page.find("a/4.ppm"), std::string::npos);
  EXPECT_NE(page.find("b/5.ppm"), std::string::npos);
  fs::rename(folder_ / "run", folder_ / "earlier");
  const ProgramResult excluded =
      train(1, "--data.check=full --train.max_epochs=1 --data.exclude=" + folder_.path("earlier/bad_samples.txt"));
  EXPECT_EQ(excluded.exit_code, 0) << excluded.output;
  EXPECT_EQ(folder_.read("run/report.html").find("a/4.ppm"), std::string::npos);
  fs::remove_all(folder_ / "run");
  const ProgramResult limited = train(2, "--data.on_error=replace --data.max_errors=1 --train.max_epochs=4");
  EXPECT_EQ(limited.exit_code, 3) << limited.output;
  EXPECT_NE(limited.output.find("data.max_errors = 1"), std::string::npos) << limited.output;
}

// Cut, deleted, and the last two of the list, which the first ones replace.
TEST_F(DamagedImagesTest, TheSameDamageGivesTheSameBits) {
  folder_.write(name_of(4), "P6 8 8 255\ncut");
  fs::remove(folder_ / name_of(5));
  folder_.write(name_of(46), "");
  folder_.write(name_of(47), "no image");
  const std::string few = listed() +
                          "--data.on_error=replace --data.val_fraction=0 --eval.every=never --train.lanes=6 "
                          "--ckpt.keep_best=0 --data.transform=random_crop,size=8,padding=1 ";
  const std::string all = few + "--train.max_steps=10 ";  // four steps per epoch
  const std::string end = "/ckpt/step-000000000010";
  const ProgramResult one = train(1, all + "--data.workers=0", "one");
  ASSERT_EQ(one.exit_code, 0) << one.output;
  const auto losses = report::read_series(folder_.path("one/metrics.jsonl"), "loss");
  ASSERT_EQ(losses.size(), 10U);
  EXPECT_EQ(count_of(folder_.read("one/bad_samples.txt"), "\n"), 4U);
  EXPECT_EQ(last(folder_.path("one"), "data_errors"), 4);
  for (const int ranks : {2, 3}) {
    const std::string run = "ranks" + std::to_string(ranks);
    const ProgramResult outcome = train(ranks, all + "--data.workers=" + std::to_string(ranks - 2), run);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_EQ(count_of(folder_.read(run + "/bad_samples.txt"), "\n"), 4U) << outcome.output;
  }
  ASSERT_EQ(train(2, few + "--train.max_steps=5", "parts").exit_code, 0);
  const ProgramResult resumed = train(3, all + "--resume=must", "parts");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_EQ(count_of(folder_.read("parts/bad_samples.txt"), "\n"), 4U) << folder_.read("parts/bad_samples.txt");
  for (const char* const run : {"ranks2", "ranks3", "parts"}) {
    EXPECT_EQ(report::read_series(folder_.path(run) + "/metrics.jsonl", "loss"), losses) << run;
    EXPECT_EQ(
        testing::differences(checkpoints::read(folder_.path(run) + end), checkpoints::read(folder_.path("one") + end)),
        "")
        << run;
  }
}

// A run that begins again in the folder of a failed one lists its own replaced images only.
TEST_F(DamagedImagesTest, AFailedRunLeavesNoNames) {
  folder_.write(name_of(4), "cut");
  folder_.write(name_of(5), "cut");
  const std::string replace = "--data.on_error=replace --data.val_fraction=0 --eval.every=never --train.max_epochs=2 ";
  ASSERT_EQ(train(1, replace + "--data.max_errors=1").exit_code, 3);
  folder_.write(name_of(4), ppm(12));
  const ProgramResult outcome = train(1, replace);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(folder_.read("run/bad_samples.txt"), "b/5.ppm\n");
}

TEST_F(DamagedImagesTest, ImagesThatChangeDuringTheRunAreReplaced) {
  const ProgramResult outcome = change_during_the_run(
      "--data.on_error=replace",
      [&] {
        folder_.write(name_of(4), "P6 8 8 255\ncut");
        fs::remove(folder_ / name_of(5));
        folder_.write(name_of(6), ppm(1, 10));
      },
      [&] { return count_of(folder_.read("run/bad_samples.txt"), "\n") >= 3; });
  EXPECT_EQ(outcome.rank_codes, (std::vector<int>{0, 0})) << outcome.output;
  const std::string page = folder_.read("run/report.html");
  const std::string bad = folder_.read("run/bad_samples.txt");
  for (const std::string name : {"a/4.ppm", "b/5.ppm", "a/6.ppm"}) {
    const std::string path = folder_.path("images/" + name);
    EXPECT_EQ(count_of(outcome.output, "replaces a sample: " + path), 1U) << outcome.output;
    EXPECT_EQ(count_of(bad, name + "\n"), 1U) << bad;
    EXPECT_NE(page.find(name), std::string::npos) << name;
  }
  EXPECT_EQ(last(folder_.path("run"), "data_errors"), 3);
}

// A single rank notices it, says so, and ends the job with its code.
TEST_F(DamagedImagesTest, AnImageThatChangesDuringTheRunEndsIt) {
  struct Change {
    std::function<void(const std::string&)> apply;
    std::string fault;
  };
  const std::vector<Change> changes = {
      {[&](const std::string& name) { folder_.write(name, "P6 8 8 255\ncut"); }, "the file is truncated"},
      {[&](const std::string& name) { fs::remove(folder_ / name); }, "cannot be opened (No such file or directory)"},
      {[&](const std::string& name) { folder_.write(name, ppm(1, 10)); }, "10 x 10"}};
  const std::size_t drawn = testing::test_seed() % changes.size();
  for (std::size_t i = 0; i < changes.size(); ++i) {
    if (!testing::is_long_run() && i != drawn) continue;
    fs::remove_all(folder_ / "run");
    const auto is_over = [&] { return fs::exists(folder_ / "run/failure.json"); };
    const ProgramResult outcome = change_during_the_run(
        "", [&] { changes[i].apply(name_of(5)); }, is_over);
    EXPECT_EQ(outcome.exit_code, 3) << outcome.output;
    for (const int code : outcome.rank_codes) EXPECT_TRUE(code == 3 || code == -1) << outcome.output;
    EXPECT_NE(outcome.output.find(folder_.path(name_of(5)) + ": "), std::string::npos) << outcome.output;
    EXPECT_NE(outcome.output.find(changes[i].fault), std::string::npos) << outcome.output;
    EXPECT_NE(folder_.read("run/STATUS.json").find("failed"), std::string::npos);
    EXPECT_NE(folder_.read("run/report.html").find(changes[i].fault), std::string::npos);
    folder_.write(name_of(5), ppm(15));
  }
}

}  // namespace damaged_images_test
}  // namespace lockstep
