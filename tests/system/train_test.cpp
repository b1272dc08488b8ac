// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cstdlib>

#include "checkpoints/store/store.hpp"
#include "report/files/metrics.hpp"
#include "support/folders.hpp"
#include "support/program.hpp"

namespace lockstep {
namespace train_test {

namespace fs = std::filesystem;
using testing::ProgramResult;
using testing::run_ranks;

double last(const fs::path& run, const std::string& key) {
  const auto series = report::read_series((run / "metrics.jsonl").string(), key);
  return series.empty() ? -1 : series.back().second;
}

std::string config(const std::string& name) {
  const char* const source = std::getenv("LOCKSTEP_SOURCE_DIR");
  return "--config=" + std::string(source != nullptr ? source : ".") + "/tools/configs/" + name + " ";
}

TEST(TrainTest, TheDefaultRunPasses98PercentAndALinearModelStaysBelow93) {
  const testing::TemporaryFolder folder;
  const ProgramResult cnn = run_ranks(2, "--run.dir=" + folder.path("cnn"), 300);
  ASSERT_EQ(cnn.exit_code, 0) << cnn.output;
  EXPECT_GE(last(folder / "cnn", "val/accuracy"), 0.98);
  const ProgramResult linear = run_ranks(2, "--model.name=mlp --model.hidden= --run.dir=" + folder.path("linear"), 300);
  ASSERT_EQ(linear.exit_code, 0) << linear.output;
  EXPECT_LT(last(folder / "linear", "val/accuracy"), 0.93);
  EXPECT_GT(last(folder / "linear", "val/accuracy"), 0.5);
}

// A softmax regression on full batches: with a search along every direction its loss only falls. Every line of the
// metrics tells how often it was evaluated.
TEST(TrainTest, LbfgsLearnsDigits) {
  const testing::TemporaryFolder folder;
  const ProgramResult outcome =
      run_ranks(2,
                "--model.name=mlp --model.hidden= --optim.name=lbfgs --optim.lr=1 "
                "--optim.line_search_fn=strong_wolfe --data.train_size=2400 "
                "--train.global_batch_size=2400 --train.max_epochs=3 --log.every=1 --run.dir=" +
                    folder.path("run"),
                300);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_GT(last(folder / "run", "val/accuracy"), 0.75);
  const auto losses = report::read_series(folder.path("run/metrics.jsonl"), "loss");
  const auto evaluations = report::read_series(folder.path("run/metrics.jsonl"), "evaluations");
  ASSERT_EQ(losses.size(), 3U);
  ASSERT_EQ(evaluations.size(), 3U);
  for (std::size_t i = 1; i < losses.size(); ++i) EXPECT_LT(losses[i].second, losses[i - 1].second) << i;
  EXPECT_GT(evaluations[0].second, 1);
}

// Three seeds reached 0.9955 to 0.998 with cross_entropy, two 0.9935 and 0.996 with bce.
TEST(TrainTest, DigitsAreLearnedFromMixedBatches) {
  for (const char* loss : {"auto", "bce"}) {
    const testing::TemporaryFolder folder;
    const ProgramResult outcome = run_ranks(2,
                                            "--train.max_epochs=6 --data.train_size=6000 --train.mix=mixup "
                                            "--train.mix=cutmix --loss.label_smoothing=0.1 --train.metrics=top_k,k=1 "
                                            "--train.mix_until=0.9 --loss.name=" +
                                                std::string(loss) + " --run.dir=" + folder.path("run"),
                                            300);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_GE(last(folder / "run", "val/accuracy"), 0.98) << loss;
    EXPECT_GT(last(folder / "run", "train/top_1_accuracy"), 0.7) << loss;
  }
}

TEST(TrainTest, ARunLeavesTheFilesThatTheReadmeLists) {
  const testing::TemporaryFolder folder;
  const fs::path run = folder / "run";
  const ProgramResult outcome =
      run_ranks(2,
                "--data.train_size=480 --data.val_size=50 --model.name=mlp --train.max_epochs=2 "
                "--run.dir=" +
                    run.string());
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  for (const char* name : {"config.resolved.ini", "config.resolved.json", "argv.txt", "env.json", "train.log",
                           "logs/rank_00000.log", "logs/rank_00001.log", "metrics.jsonl", "summary.csv", "STATUS.json",
                           "loss.svg", "ckpt/step-000000000020/state.h5"}) {
    EXPECT_TRUE(fs::exists(run / name)) << name;
    EXPECT_GT(fs::file_size(run / name), 0U) << name;
  }
  EXPECT_NE(testing::read_file(run / "STATUS.json").find("\"done\""), std::string::npos);
  const std::string command = testing::read_file(run / "argv.txt");
  EXPECT_EQ(command.find('\n'), command.size() - 1) << "one line: " << command;
  EXPECT_EQ(last(run, "val/count"), 50);
  // Only rank 0 speaks: no line of the console names another rank.
  EXPECT_EQ(outcome.output.find("r1/2"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("r0/2"), std::string::npos) << outcome.output;

  // The resolved configuration is a configuration: run again from it, it gives the same losses.
  const ProgramResult again =
      run_ranks(2, "--config=" + (run / "config.resolved.ini").string() + " --run.dir=" + folder.path("again"));
  ASSERT_EQ(again.exit_code, 0) << again.output;
  EXPECT_EQ(report::read_series(folder.path("again/metrics.jsonl"), "loss"),
            report::read_series((run / "metrics.jsonl").string(), "loss"));

  const ProgramResult eval = run_ranks(2, "eval --from=" + run.string());
  EXPECT_EQ(eval.exit_code, 0) << eval.output;
  EXPECT_NE(eval.output.find("step 20 "), std::string::npos) << eval.output;
  EXPECT_NE(eval.output.find("val/count 50"), std::string::npos) << eval.output;
}

TEST(TrainTest, AReportSaysWhatBoundsAStepAndDrawsIt) {
  const testing::TemporaryFolder folder;
  const std::string run = "--data.train_size=480 --train.max_epochs=1 --ddp.report=true --ddp.check_writes=true ";
  const ProgramResult combined = run_ranks(
      2, run + "--ddp.bucket_mb=0.003814697265625 --ddp.last_bucket_mb=0 --run.dir=" + folder.path("together"));
  ASSERT_EQ(combined.exit_code, 0) << combined.output;
  for (const char* words : {", the slowest of 2: a median step of the last ",
                            "communication exposed by rank: ", "ddp.report: ", "-bound; communication exposed "}) {
    EXPECT_NE(combined.output.find(words), std::string::npos) << words << " in " << combined.output;
    EXPECT_NE(testing::read_file(folder / "together/train.log").find(words), std::string::npos) << words;
  }
  const std::string drawing = testing::read_file(folder / "together/ddp.svg");
  for (const char* words : {"<svg ", ", the slowest</text>", ">bucket 1</text>", ">compute</text>", "</svg>\n"}) {
    EXPECT_NE(drawing.find(words), std::string::npos) << words;
  }
  const ProgramResult alone = run_ranks(1, run + "--run.dir=" + folder.path("alone"));
  ASSERT_EQ(alone.exit_code, 0) << alone.output;
  EXPECT_NE(alone.output.find("ddp.report: one rank: no communication"), std::string::npos) << alone.output;
  EXPECT_FALSE(fs::exists(folder / "alone/ddp.svg"));
}

TEST(TrainTest, NothingIsLeftInSharedMemory) {
  const auto entries = [] {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator("/dev/shm")) {
      const std::string name = entry.path().filename();
      if (name.find("lockstep") != std::string::npos) names.push_back(name);
    }
    return names;
  };
  const testing::TemporaryFolder folder;
  const auto before = entries();
  ASSERT_EQ(run_ranks(2, "--data.train_size=96 --train.max_steps=2 --run.dir=" + folder.path("run")).exit_code, 0);
  testing::run_shell("timeout -s KILL 3 " + testing::mpirun_command(2) + " " + testing::trainer_program() +
                     " --train.max_epochs=50 --run.dir=" + folder.path("killed"));
  EXPECT_EQ(entries(), before);
}

TEST(TrainTest, H5lsAndH5pyReadACheckpoint) {
  const testing::TemporaryFolder folder;
  ASSERT_EQ(run_ranks(1, "--model.name=mlp --data.train_size=96 --train.max_steps=2 --run.dir=" + folder.path("run"))
                .exit_code,
            0);
  const std::string state = folder.path("run/ckpt/step-000000000002/state.h5");
  if (testing::run_shell("command -v h5ls").exit_code != 0) GTEST_SKIP() << "h5ls is not installed";
  const ProgramResult listing = testing::run_shell("h5ls -r " + state);
  EXPECT_NE(listing.output.find("/model/params/hidden0.weight Dataset {128, 784}"), std::string::npos)
      << listing.output;
  const std::string python = "/usr/bin/python3";
  if (testing::run_shell(python + " -c 'import h5py'").exit_code != 0) GTEST_SKIP() << "h5py is not installed";
  const ProgramResult read =
      testing::run_shell(python + " -c \"import h5py; f = h5py.File('" + state +
                         "'); w = f['model/params/head.bias']; print(w.shape, w.dtype, f.attrs['step'])\"");
  EXPECT_EQ(read.output, "(10,) float32 2\n");
}

TEST(TrainTest, MnistFromIdxFiles) {
  const fs::path data = testing::sample_data("mnist10k");
  if (!fs::exists(data)) GTEST_SKIP() << "there is no " << data;
  const testing::TemporaryFolder folder;
  const std::string epochs = testing::is_long_run() ? "" : "--train.max_epochs=2 ";
  const ProgramResult outcome = run_ranks(
      2, config("mnist.ini") + epochs + "--data.path=" + data.string() + " --run.dir=" + folder.path("run"), 600);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(last(folder / "run", "val/count"), 2000);
  EXPECT_GE(last(folder / "run", "val/accuracy"), testing::is_long_run() ? 0.975 : 0.96);
}

TEST(TrainTest, GptOnTinyShakespeare) {
  const fs::path text = testing::sample_data("tinyshakespeare/input.txt");
  if (!fs::exists(text)) GTEST_SKIP() << "there is no " << text;
  const testing::TemporaryFolder folder;
  const bool is_long = testing::is_long_run();
  // The short form stops the same run early: 150 of 2000 steps lead well below the 3.3 of letter frequencies.
  const std::vector<int> seeds = is_long ? std::vector<int>{1, 2, 3} : std::vector<int>{1};
  for (const int seed : seeds) {
    for (const int ranks : is_long ? std::vector<int>{1, 2} : std::vector<int>{2}) {
      const std::string run = folder.path("run" + std::to_string(seed) + "-" + std::to_string(ranks));
      const ProgramResult outcome =
          run_ranks(ranks,
                    config("gpt-char.ini") + "--data.path=" + text.string() + " --run.seed=" + std::to_string(seed) +
                        (is_long ? "" : " --train.max_steps=150") + " --run.dir=" + run,
                    900);
      ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
      EXPECT_EQ(last(run, "val/count"), 111540 - 1);  // every token of the last tenth but the first is predicted once
      // PyTorch with the same configuration reaches 1.905 and 1.910 over the whole split (seeds 1 and 2), spread 0.02.
      EXPECT_LE(last(run, "val/loss"), is_long ? 1.94 : 2.75);
      std::printf("seed %d, %d ranks: val/loss %.4f\n", seed, ranks, last(run, "val/loss"));
    }
  }
}

}  // namespace train_test
}  // namespace lockstep
