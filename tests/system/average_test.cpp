// SPDX-License-Identifier: BSD-3-Clause
// A run that keeps an average of its weights: evaluated in the run and afterwards, resumed, and looked at from outside.
#include <gtest/gtest.h>

#include <cstdio>

#include "checkpoints/store/store.hpp"
#include "report/files/metrics.hpp"
#include "support/archives.hpp"
#include "support/program.hpp"

namespace lockstep {
namespace average_test {

using testing::ProgramResult;
using testing::run_ranks;

const std::string kSmall =
    " --data.train_size=480 --data.val_size=96 --model.channels=4,8 --model.hidden=16 --log.every=1 "
    "--optim.lr=0.01 --eval.every=5 ";
const std::string kEma = kSmall + "--ema.kind=ema --ema.decay=0.8 --ema.begin=4 ";
const std::string kEnd = "/ckpt/step-000000000020";

class AverageRunTest : public ::testing::Test {
 protected:
  /// A run of two ranks, in a folder of its own.
  std::string run(const std::string& name, const std::string& arguments) const {
    const std::string directory = folder_.path(name);
    last_ = run_ranks(2, "train --run.dir=" + directory + " " + arguments);
    EXPECT_EQ(last_.exit_code, 0) << last_.output;
    return directory;
  }

  static double validation_loss(const std::string& directory) {
    const auto series = report::read_series(directory + "/metrics.jsonl", "val/loss");
    return series.empty() ? -1 : series.back().second;
  }

  /// The values that `trainer eval` prints of it.
  static double evaluated_loss(const std::string& directory, const std::string& arguments = "") {
    const ProgramResult outcome = run_ranks(2, "eval --from=" + directory + " " + arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    double loss = -1;
    std::sscanf(outcome.output.c_str() + outcome.output.find("val/loss"), "val/loss %lf", &loss);
    return loss;
  }

  static ProgramResult ckpt(const std::string& arguments) {
    return testing::run_shell(testing::ckpt_program() + " " + arguments, 60);
  }

  testing::TemporaryFolder folder_;
  mutable ProgramResult last_;
};

TEST_F(AverageRunTest, EvaluatesTheAverageAndTrainsOnAsWithoutIt) {
  const std::string plain = run("plain", kSmall + "--train.max_steps=20");
  const std::string averaged = run("averaged", kEma + "--train.max_steps=20 --ddp.check_writes=true");
  EXPECT_EQ(report::read_series(averaged + "/metrics.jsonl", "loss"),
            report::read_series(plain + "/metrics.jsonl", "loss"));
  EXPECT_NE(validation_loss(averaged), validation_loss(plain));
  const double printed = 1e-5;  // six digits are
  EXPECT_NEAR(evaluated_loss(averaged), validation_loss(averaged), printed * validation_loss(averaged));
  EXPECT_NEAR(evaluated_loss(averaged, "--eval.weights=trained"), validation_loss(plain),
              printed * validation_loss(plain));
  const ProgramResult none = run_ranks(2, "eval --eval.weights=average --from=" + plain);
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_NE(none.output.find("contains no average of the weights"), std::string::npos) << none.output;

  // A run that begins from such a run begins with the average.
  const std::string begun = " --train.max_steps=1 --eval.every=1 --optim.lr=1e-9 --init.from=" + averaged + kEnd;
  EXPECT_NEAR(validation_loss(run("begun", kSmall + begun)), validation_loss(averaged), 1e-5);
  EXPECT_NEAR(validation_loss(run("trained", kSmall + begun + " --init.weights=trained")), validation_loss(plain),
              1e-5);
}

TEST_F(AverageRunTest, ContinuesBitForBit) {
  const std::string straight = run("straight", kEma + "--train.max_steps=20");
  run("halves", kEma + "--train.max_steps=11");
  const std::string halves = run("halves", kEma + "--train.max_steps=20 --resume=auto");
  EXPECT_EQ(testing::differences(checkpoints::read(halves + kEnd), checkpoints::read(straight + kEnd)), "");
  EXPECT_EQ(ckpt("hash " + halves).output, ckpt("hash " + straight).output);
  EXPECT_EQ(validation_loss(halves), validation_loss(straight));
}

TEST_F(AverageRunTest, StartsAgainWithAWarning) {
  const std::string directory = run("run", kSmall + "--train.max_steps=6");
  run("run", kSmall + "--train.max_steps=8 --resume=auto --ema.kind=swa");
  EXPECT_NE(last_.output.find("the checkpoint contains no average of the weights; the average of ema.kind=swa starts "
                              "from the weights of step 6"),
            std::string::npos)
      << last_.output;
  run("run", kSmall + "--train.max_steps=9 --resume=auto");
  EXPECT_NE(last_.output.find("the average of the weights in the checkpoint (ema.kind=swa) is discarded"),
            std::string::npos)
      << last_.output;
  EXPECT_TRUE(checkpoints::read(directory + "/ckpt/step-000000000008").has("/ema/params/conv0.weight"));
  EXPECT_FALSE(checkpoints::read(directory + "/ckpt/step-000000000009").has("/ema/params/conv0.weight"));
}

TEST_F(AverageRunTest, CkptShowsAndComparesTheAverage) {
  const std::string slow = run("slow", kEma + "--train.max_steps=20");
  const std::string fast = run("fast", kEma + "--train.max_steps=20 --ema.decay=0.5");
  const ProgramResult shown = ckpt("show " + slow + " /ema");
  EXPECT_EQ(shown.exit_code, 0) << shown.output;
  for (const char* words : {"kind", "ema", "decay", "0.8", "updates", "17"}) {
    EXPECT_NE(shown.output.find(words), std::string::npos) << words << " in " << shown.output;
  }
  const ProgramResult array = ckpt("show " + slow + " '/ema/params/conv0.weight[0]'");
  EXPECT_EQ(array.exit_code, 0) << array.output;
  EXPECT_NE(array.output.find("float32 [1, 3, 3]"), std::string::npos) << array.output;
  const ProgramResult diff = ckpt("diff " + slow + " " + fast);
  EXPECT_EQ(diff.exit_code, 1) << diff.output;
  EXPECT_NE(diff.output.find("/ema/params/conv0.weight"), std::string::npos) << diff.output;
  EXPECT_EQ(diff.output.find("\nconv0.weight"), std::string::npos) << diff.output;  // the trained one
  EXPECT_NE(ckpt("info " + slow).output.find("ema of 17 updates"), std::string::npos);

  const std::string exported = folder_.path("average.safetensors");
  const ProgramResult converted = ckpt("convert " + slow + " --only ema --to " + exported);
  EXPECT_EQ(converted.exit_code, 0) << converted.output;
  const std::string begun = " --train.max_steps=1 --eval.every=1 --optim.lr=1e-9 --init.from=" + exported;
  EXPECT_NEAR(validation_loss(run("begun", kSmall + begun)), validation_loss(slow), 1e-5);
}

}  // namespace average_test
}  // namespace lockstep
