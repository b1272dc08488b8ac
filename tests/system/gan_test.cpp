// SPDX-License-Identifier: BSD-3-Clause
// Two optimizers with steps of their own, in a user's program.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "checkpoints/store/store.hpp"
#include "support/archives.hpp"
#include "support/program.hpp"

namespace lockstep {
namespace gan_test {

using testing::ProgramResult;
using testing::TemporaryFolder;

struct Case {
  int ranks;
  std::string precision;
};

class GanTrainerTest : public ::testing::TestWithParam<Case> {
 protected:
  static std::string options(const std::string& run) {
    return " --data.name=digits --data.train_size=640 --data.val_size=64 --model.name=gan --train.step_kind=gan "
           "--train.hooks=generated --optim.part=generator,name=adam,lr=0.002,betas=0.5,0.999 "
           "--optim.part=discriminator,name=rmsprop,lr=0.001 --sched.rule=cosine,part=generator "
           "--train.global_batch_size=32 --train.max_steps=40 --ckpt.every=8 "
           "--ckpt.async=false --ema.kind=ema --ema.decay=0.9 --ema.names=generator --eval.every=end "
           "--eval.metrics=predicted_as_real --log.every=8 --resume=auto --train.precision=" +
           GetParam().precision +
           (GetParam().precision == "fp16" ? " --train.init_scale=1e8 --train.growth_interval=5" : "") +
           " --run.dir=" + run;
  }
  static ProgramResult train(const std::string& run, const std::string& more = "",
                             const std::string& environment = "") {
    return testing::run_shell(environment + " " + testing::mpirun_command(GetParam().ranks) +
                              " '" GAN_TRAINER "' train" + options(run) + more);
  }
  static std::string checkpoint(const std::string& run) { return run + "/ckpt/step-000000000040"; }

  /// The output, the log, the report and the checkpoint have it.
  static void expect_both_parts(const std::string& run, const std::string& output) {
    EXPECT_NE(output.find("optimizer discriminator: rmsprop, generator: adam"), std::string::npos) << output;
    const std::string log = testing::read_file(run + "/metrics.jsonl");
    for (const char* name : {"lr/generator", "lr/discriminator", "loss_generator", "loss_discriminator"}) {
      EXPECT_NE(log.find("\"" + std::string(name)), std::string::npos) << name << "\n" << log;
    }
    EXPECT_EQ(log.find("\"loss_scale/generator") != std::string::npos, GetParam().precision == "fp16") << log;
    EXPECT_NE(testing::read_file(run + "/report.html").find("generated"), std::string::npos);
    const std::string info = testing::run_shell(testing::ckpt_program() + " info " + checkpoint(run)).output;
    EXPECT_NE(info.find("generator: adam"), std::string::npos) << info;
    EXPECT_NE(info.find("discriminator: rmsprop"), std::string::npos) << info;
  }
};

/// The value after a key in the last line of a log that has it.
double last_value(const std::string& log, const std::string& key) {
  const std::string quoted = '"' + key + "\":";
  const std::size_t position = log.rfind(quoted);
  EXPECT_NE(position, std::string::npos) << key << "\n" << log;
  return position == std::string::npos ? 0 : std::atof(log.c_str() + position + quoted.size());
}

// Digits differ so much from the images of an untrained generator that the discriminator recognizes them soon. The
// resumed run has every array of the checkpoint at the end, and the log of the steps after the restart.
TEST_P(GanTrainerTest, LearnsShowsBothPartsAndContinuesBitForBit) {
  const TemporaryFolder folder;
  const std::string straight = folder.path("straight");
  const ProgramResult whole = train(straight);
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  expect_both_parts(straight, whole.output);
  const std::string log = testing::read_file(straight + "/metrics.jsonl");
  const std::string of_ranks = GetParam().ranks > 1 ? "/mean" : "";
  EXPECT_GT(last_value(log, "val/predicted_as_real"), 0.9);
  EXPECT_LT(last_value(log, "loss_discriminator" + of_ranks), 0.7);  // half of the loss of guesses, 2 ln 2
  const std::string run = folder.path("run");
  EXPECT_NE(train(run, "", "KILL_AT=21").exit_code, 0);
  const ProgramResult resumed = train(run);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  const checkpoints::Archive expected = checkpoints::read(checkpoint(straight));
  EXPECT_EQ(testing::differences(expected, checkpoints::read(checkpoint(run))), "");
  const std::string continued = testing::read_file(run + "/metrics.jsonl");
  for (const std::string& key :
       {"loss_generator" + of_ranks, "loss_discriminator" + of_ranks, std::string("val/predicted_as_real")}) {
    EXPECT_EQ(last_value(continued, key), last_value(log, key)) << key;
  }
}

TEST_P(GanTrainerTest, OtherPartsAreRefused) {
  const TemporaryFolder folder;
  const std::string run = folder.path("run");
  const ProgramResult third = train(run, " --optim.part=third,names=generator.second");
  EXPECT_EQ(third.exit_code, 2) << third.output;
  EXPECT_NE(third.output.find("updates the parts discriminator, generator"), std::string::npos) << third.output;
  const ProgramResult unknown = train(run, " --sched.rule=cosine,part=critic");
  EXPECT_EQ(unknown.exit_code, 2) << unknown.output;
  EXPECT_NE(unknown.output.find("part 'critic' is unknown"), std::string::npos) << unknown.output;
}

INSTANTIATE_TEST_SUITE_P(Runs, GanTrainerTest, ::testing::Values(Case{1, "fp32"}, Case{2, "fp32"}, Case{2, "fp16"}),
                         [](const auto& test) {
                           return std::to_string(test.param.ranks) + "Ranks" + test.param.precision;
                         });

}  // namespace gan_test
}  // namespace lockstep
