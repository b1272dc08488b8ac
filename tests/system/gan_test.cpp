// SPDX-License-Identifier: BSD-3-Clause
// Two optimizers with steps of their own, in a user's program.
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "checkpoints/store/store.hpp"
#include "support/archives.hpp"
#include "support/program.hpp"

namespace lockstep {
namespace gan_test {

using testing::Outcome;
using testing::TemporaryFolder;

struct Case {
  int ranks;
  std::string precision;
};

std::vector<std::string> lines_with(const std::string& text, const std::string& word) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (line.find(word) != std::string::npos) lines.push_back(line);
  }
  return lines;
}

class GanTest : public ::testing::TestWithParam<Case> {
 protected:
  std::string train(const std::string& folder, int steps) const {
    const Outcome outcome = testing::run_shell(testing::mpirun_command(GetParam().ranks) + " '" GAN_PROGRAM "' '" +
                                               folder + "' " + std::to_string(steps) + " " + GetParam().precision);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    return outcome.output;
  }
};

// The losses of every step after the restart, and every byte of the checkpoint at the end. Digits are far from what an
// untrained generator makes, so that the discriminator knows them soon.
TEST_P(GanTest, LearnsAndContinuesBitForBit) {
  const TemporaryFolder folder;
  const std::string said = train(folder.path() + "/whole", 60);
  const std::vector<std::string> whole = lines_with(said, "losses");
  ASSERT_EQ(whole.size(), 60U);
  const std::vector<std::string> result = lines_with(said, "predicted as real: ");
  ASSERT_EQ(result.size(), 1U) << said;
  EXPECT_GT(std::atof(result[0].substr(result[0].rfind(' ')).c_str()), 0.9) << said;

  const std::string parts = folder.path() + "/parts";
  EXPECT_EQ(lines_with(train(parts, 9), "losses").size(), 9U);
  EXPECT_EQ(lines_with(train(parts, 60), "losses"), std::vector<std::string>(whole.begin() + 9, whole.end()));
  const Outcome diff = testing::run_shell(testing::ckpt_program() + " diff --bitwise " + folder.path() +
                                          "/whole/step-000000000060 " + parts + "/step-000000000060");
  EXPECT_EQ(diff.exit_code, 0) << diff.output;
}

INSTANTIATE_TEST_SUITE_P(Runs, GanTest, ::testing::Values(Case{1, ""}, Case{2, ""}, Case{2, "fp16"}),
                         [](const auto& test) {
                           return std::to_string(test.param.ranks) + "Ranks" + test.param.precision;
                         });

// ---- With the trainer

class GanTrainerTest : public ::testing::TestWithParam<int> {
 protected:
  static std::string options(const std::string& run) {
    return " --data.name=digits --data.train_size=640 --data.val_size=64 --model.name=gan --train.step=gan "
           "--train.hooks=generated --optim.part=generator,name=adam,lr=0.002,betas=0.5/0.999 "
           "--optim.part=discriminator,name=rmsprop,lr=0.001 --sched.rule=cosine,part=generator "
           "--train.global_batch_size=32 --train.max_epochs=0 --train.max_steps=40 --ckpt.every_steps=8 "
           "--ckpt.async=false --ema.kind=ema --ema.decay=0.9 --ema.names=generator --eval.when=never "
           "--log.interval=8 --resume=auto --run.dir=" +
           run;
  }
  static Outcome train(const std::string& run, const std::string& more = "", const std::string& environment = "") {
    return testing::run_shell(environment + " " + testing::mpirun_command(GetParam()) + " '" GAN_TRAINER "' train" +
                              options(run) + more);
  }
  static std::string checkpoint(const std::string& run) { return run + "/ckpt/step-000000000040"; }

  /// The output, the log, the report and the checkpoint have it.
  static void expect_both_parts(const std::string& run, const std::string& output) {
    EXPECT_NE(output.find("optimizer discriminator: rmsprop, generator: adam"), std::string::npos) << output;
    const std::string log = testing::read_file(run + "/metrics.jsonl");
    for (const char* name : {"lr/generator", "lr/discriminator", "loss_generator", "loss_discriminator"}) {
      EXPECT_NE(log.find("\"" + std::string(name)), std::string::npos) << name << "\n" << log;
    }
    EXPECT_NE(testing::read_file(run + "/report.html").find("generated"), std::string::npos);
    const std::string info = testing::run_shell(testing::ckpt_program() + " info " + checkpoint(run)).output;
    EXPECT_NE(info.find("generator: adam"), std::string::npos) << info;
    EXPECT_NE(info.find("discriminator: rmsprop"), std::string::npos) << info;
  }
};

// Every array of the checkpoint at the end.
TEST_P(GanTrainerTest, ShowsBothPartsAndContinuesBitForBit) {
  const TemporaryFolder folder;
  const std::string straight = folder.path("straight");
  const Outcome whole = train(straight);
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  expect_both_parts(straight, whole.output);
  const std::string run = folder.path("run");
  EXPECT_NE(train(run, "", "KILL_AT=21").exit_code, 0);
  const Outcome resumed = train(run);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  const checkpoints::Archive expected = checkpoints::read(checkpoint(straight));
  EXPECT_EQ(testing::differences(expected, checkpoints::read(checkpoint(run))), "");
}

TEST_P(GanTrainerTest, OtherPartsAreRefused) {
  const TemporaryFolder folder;
  const std::string run = folder.path("run");
  const Outcome third = train(run, " --optim.part=third,names=generator.second");
  EXPECT_EQ(third.exit_code, 2) << third.output;
  EXPECT_NE(third.output.find("updates the parts discriminator, generator"), std::string::npos) << third.output;
  const Outcome unknown = train(run, " --sched.rule=cosine,part=critic");
  EXPECT_EQ(unknown.exit_code, 2) << unknown.output;
  EXPECT_NE(unknown.output.find("part 'critic' is unknown"), std::string::npos) << unknown.output;
}

INSTANTIATE_TEST_SUITE_P(Ranks, GanTrainerTest, ::testing::Values(1, 2));

}  // namespace gan_test
}  // namespace lockstep
