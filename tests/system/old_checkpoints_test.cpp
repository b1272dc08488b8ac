// SPDX-License-Identifier: BSD-3-Clause
// Checkpoints that older versions have written: tests/data/README.md. Every one is read, loaded and resumed.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <sstream>
#include <utility>
#include <vector>

#include "report/files/metrics.hpp"
#include "support/folders.hpp"
#include "support/program.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::ProgramResult;

constexpr std::int64_t kStoredStep = 10;
constexpr std::int64_t kLastStep = 14;
// Kernels of other processors round differently: measured with those for AVX2, the losses differ by less than 1e-5, and
// by more than 6e-4 without the stored state of the optimizer.
constexpr double kTolerance = 1e-4;

fs::path data_folder() { return testing::source_root() / "tests/data/checkpoints"; }

/// The content of expected.txt.
struct Expected {
  int ranks = 0;
  std::string state;
  std::map<std::string, std::vector<std::pair<std::int64_t, double>>> losses;  ///< step and value, by series
};

Expected read_expected(const fs::path& path) {
  Expected expected;
  std::istringstream lines(testing::read_file(path));
  for (std::string word; lines >> word;) {
    if (word == "ranks") {
      lines >> expected.ranks;
    } else if (word == "state") {
      lines >> expected.state;
    } else {
      auto& [step, value] = expected.losses[word].emplace_back();
      lines >> step >> value;
    }
  }
  return expected;
}

class OldCheckpointsTest : public ::testing::TestWithParam<std::string> {
 protected:
  OldCheckpointsTest() {
    for (const auto& entry : fs::directory_iterator(stored_)) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with("step-")) continue;
      checkpoint_ = folder_ / name;
      fs::copy(entry.path(), checkpoint_, fs::copy_options::recursive);
    }
  }

  /// Goes on from the stored checkpoint in a new run folder.
  ProgramResult resume(const std::string& run, std::int64_t last_step, const std::string& more) const {
    std::string arguments = "train --config='" + (stored_ / "config.ini").string() + "' --run.dir=" + run +
                            " --resume=" + checkpoint_ + " --log.every=1 --log.tensorboard=false" +
                            " --train.max_steps=" + std::to_string(last_step) + more;
    if (GetParam().starts_with("gpt_")) arguments += " --data.path='" + (data_folder() / "text.txt").string() + "'";
    return testing::run_ranks(expected_.ranks, arguments);
  }

  fs::path stored_ = data_folder() / GetParam();
  Expected expected_ = read_expected(stored_ / "expected.txt");
  testing::TemporaryFolder folder_;
  std::string checkpoint_;  // a copy: a damaged checkpoint would be renamed
};

TEST_P(OldCheckpointsTest, IsReadFromTheShell) {
  ASSERT_NE(checkpoint_, "");
  const auto ckpt = [this](const std::string& command) {
    const ProgramResult outcome = testing::run_shell(testing::ckpt_program() + " " + command + " " + checkpoint_);
    EXPECT_EQ(outcome.exit_code, 0) << command << ": " << outcome.output;
    return outcome.output;
  };
  ckpt("verify");
  EXPECT_NE(ckpt("info").find(std::to_string(kStoredStep)), std::string::npos);
  EXPECT_NE(ckpt("ls").find("/model/params/"), std::string::npos);
  EXPECT_TRUE(ckpt("hash").ends_with("state " + expected_.state + "\n"));
}

TEST_P(OldCheckpointsTest, ResumesWithTheRecordedLosses) {
  const std::string run = folder_.path("run");
  const ProgramResult outcome = resume(run, kLastStep, "");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  ASSERT_EQ(expected_.losses["loss"].size(), static_cast<std::size_t>(kLastStep - kStoredStep));
  ASSERT_EQ(expected_.losses["val/loss"].size(), 1U);
  for (const auto& [name, values] : expected_.losses) {
    auto series = report::read_series(run + "/metrics.jsonl", name);
    if (name != "loss") series.erase(series.begin(), series.end() - 1);
    ASSERT_EQ(series.size(), values.size()) << name;
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(series[i].first, values[i].first) << name;
      EXPECT_NEAR(series[i].second, values[i].second, kTolerance * std::abs(values[i].second))
          << name << " of step " << values[i].first;
    }
  }
}

// Its configuration has keys that do not exist any more.
TEST_P(OldCheckpointsTest, IsEvaluatedWithTheConfigurationThatItContains) {
  std::string arguments = "eval --from=" + folder_.path();
  if (GetParam().starts_with("gpt_")) arguments += " --data.path='" + (data_folder() / "text.txt").string() + "'";
  const ProgramResult outcome = testing::run_ranks(1, arguments);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
}

// A step with a learning rate of 0 leaves the parameters as they were loaded.
TEST_P(OldCheckpointsTest, LoadsTheParametersBitForBit) {
  const std::string run = folder_.path("run");
  const ProgramResult outcome = resume(run, kStoredStep + 1, " --optim.lr=0");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  const auto diff = [&](const std::string& filter) {
    return testing::run_shell(testing::ckpt_program() + " diff " + checkpoint_ + " " + run + " --filter '" + filter +
                              "'");
  };
  EXPECT_EQ(diff("/model/params/*").exit_code, 0) << diff("/model/params/*").output;
  EXPECT_EQ(diff("*").exit_code, 1);  // one step more: the comparison can fail
}

INSTANTIATE_TEST_SUITE_P(Stored, OldCheckpointsTest,
                         ::testing::Values("cnn_adafactor_fp16", "cnn_lbfgs", "gpt_adamw_sharded", "gpt_muon_lanes",
                                           "mlp_momentum", "mlp_powersgd", "resnet_ema"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace lockstep
