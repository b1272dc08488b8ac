// SPDX-License-Identifier: BSD-3-Clause
// What a run is refused for: by every rank, in one sentence, which all of them know to be everywhere. Numbers are those
// of the strategy's cases.
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <ostream>

#include "engine/settings/agreed.hpp"
#include "small_run.hpp"

namespace lockstep::engine {
namespace misuse_test {

struct Misuse {
  const char* name;
  Settings settings;
  const char* sentence;
  int ranks = 1;  // minimum number of ranks

  friend std::ostream& operator<<(std::ostream& out, const Misuse& misuse) { return out << misuse.sentence; }
};

class MisuseTest : public ::testing::TestWithParam<Misuse> {
 protected:
  mpi::Communicator world_ = mpi::Communicator::world();
};

class KeyMisuseTest : public MisuseTest {};

TEST_P(KeyMisuseTest, IsReportedInOneSentence) {
  try {
    sections_of(GetParam().settings);
    ADD_FAILURE() << "not refused: " << GetParam().sentence;
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string(error.what()).find("test: " + std::string(GetParam().sentence)), 0U) << error.what();
  }
}

class RunMisuseTest : public MisuseTest {};

TEST_P(RunMisuseTest, IsReportedInOneSentenceOnEveryRank) {
  if (world_.size() < GetParam().ranks) return;
  bool has_trained = false;
  try {
    SmallRun run(world_, with(kTwelveSteps, GetParam().settings));
    run.trainer.add_hook(agreed(world_, [&] { return average_hook(EmaSettings::from(run.sections.at("ema"))); }));
    run.trainer.train();
    has_trained = true;
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find(GetParam().sentence), std::string::npos) << error.what();
    EXPECT_TRUE(error.is_agreed() || world_.size() == 1) << error.what();
  }
  EXPECT_FALSE(has_trained) << "not refused: " << GetParam().sentence;
}

const auto kName = [](const auto& test) { return std::string(test.param.name); };

INSTANTIATE_TEST_SUITE_P(
    Rows, KeyMisuseTest,
    ::testing::Values(
        Misuse{"Optimizer", {{"optim.name", ""}}, "optim.name: '' is not one of: sgd, "},              // 3.3.4, 6.4.1
        Misuse{"Strategy", {{"strategy.name", "gemini"}}, "strategy.name: 'gemini' is not one of: "},  // 3.8.2
        Misuse{"Stage", {{"strategy.stage", "4"}}, "strategy.stage: '4' is not an integer in [1, 3]"},
        Misuse{"BatchNorm", {{"ddp.sync_batch_norm", "mmcv"}}, "ddp.sync_batch_norm: 'mmcv' is not "},  // 3.6.1
        Misuse{"StateForm", {{"ckpt.layout", "local"}}, "ckpt.layout: 'local' is not one of: folder"},  // 3.7.2
        Misuse{
            "BaseBatch", {{"optim.base_batch_size", "-4"}}, "optim.base_batch_size: '-4' is not an integer"},  // 3.4.1
        Misuse{"Precision", {{"train.precision", "float16"}}, "train.precision: 'float16' is not one of: "},   // 6.2.1
        Misuse{"Growth", {{"train.growth_factor", "1"}}, "train.growth_factor: '1' is not a number in (1, "},
        Misuse{"GrowthInterval", {{"train.growth_interval", "2.5"}}, "train.growth_interval: '2.5' is not an integer"},
        Misuse{"Device", {{"run.device", "xpu"}}, "run.device: 'xpu' is not one of: auto, cpu, cuda"},      // 6.2.7
        Misuse{"ClipScope", {{"train.clip_scope", "layer"}}, "train.clip_scope: 'layer' is not one of: "},  // 6.1.1
        Misuse{"Average", {{"ema.kind", "stochastic"}}, "ema.kind: 'stochastic' is not one of: "},          // 12.2.1
        Misuse{"Decay", {{"ema.decay", "1.5"}}, "ema.decay: '1.5' is not a number in (0, 1]"},              // 12.1.4
        Misuse{"Gamma", {{"ema.gamma", "0"}}, "ema.gamma: '0' is not a number > 0"},                        // 12.1.5
        Misuse{"Seed", {{"run.seed", "-1"}}, "run.seed: '-1' is not an integer in [0, "},                   // 9.1
        Misuse{"Timeout", {{"comm.timeout_s", "long"}}, "comm.timeout_s: 'long' is not a number"},          // 18.2
        Misuse{"Unknown", {{"run.cudnn_benchmrk", "true"}}, "key 'run.cudnn_benchmrk' is unknown"}),        // 3.2.1
    kName);

const Settings kSgd = {{"optim.name", "sgd"}};
const Settings kSharded = {{"strategy.name", "sharded"}};
const Settings kFp16 = {{"train.precision", "fp16"}};

INSTANTIATE_TEST_SUITE_P(
    Schedules, RunMisuseTest,  // 8.1.1 and 8.3.1, and what a curve comes to
    ::testing::Values(
        Misuse{"NoMomentum",
               {{"optim.name", "adagrad"}, {"sched.rule", "constant,of=momentum"}},
               "sched.rule: of=momentum: group 'all' does not have this option; choose one of: eps, "},
        Misuse{"MomentumFromNothing", with(kSgd, {{"sched.rule", "linear,of=momentum,base=0.9"}}),
               "sched.rule: in step 1 of group 'all' momentum would be 0.009, but sgd keeps no momentum_buffer"},
        Misuse{"Switch",
               {{"sched.rule", "constant,of=amsgrad,base=1"}},
               "sched.rule: in step 1 of group 'all' amsgrad is true or false, which a schedule cannot change"},
        Misuse{"NegativeBase",
               {{"sched.rule", "constant,base=-1,begin=6"}},
               "sched.rule: in step 7 of group 'all' lr would be -1, which is not a number >= 0"},
        Misuse{"NegativeFloor", {{"sched.rule", "cosine,floor=-1"}}, "lr would be -"},
        Misuse{"BeyondNumbers",
               {{"sched.rule", "exponential,gamma=1e200"}},
               "sched.rule: in step 3 of group 'all' lr would be inf"},
        Misuse{"BetaOfOne",
               {{"sched.rule", "linear,of=momentum,base=1,start_factor=0.5,end=3"}},
               "sched.rule: in step 4 of group 'all' beta1 would be 1, which is not a number in [0, 1)"},
        Misuse{"Group", {{"sched.rule", "linear,group=backbone"}}, "group 'backbone' is unknown; choose one of: all"},
        Misuse{"NoEnd",
               {{"train.max_steps", "0"}, {"train.max_epochs", "0"}},
               "train.max_steps and train.max_epochs are both 0"}),  // 3.3.6
    kName);

INSTANTIATE_TEST_SUITE_P(
    Strategies, RunMisuseTest,
    ::testing::Values(
        Misuse{"Model", {{"model.name", "lenet"}}, "model.name (test): 'lenet' is unknown; choose one of: "},  // 3.3.1
        Misuse{"DifferentStates",
               {{"optim.name", "rmsprop"},
                {"optim.paramwise", "custom:weight,centered=true"},
                {"optim.paramwise", "custom:bias,momentum=0.9"}},
               "optim.paramwise: the groups of an optimizer cannot have different states of rule 'rmsprop'"},
        Misuse{"NoBaseBatch", {{"optim.auto_scale_lr", "true"}}, "optim.auto_scale_lr (test) requires"},  // 3.4.1
        Misuse{"FewSamples",
               {{"train.global_batch_size", "1"}},
               "train.global_batch_size (test): 1 samples are not enough for",
               2},
        Misuse{"UnequalForwards", with(kSharded, {{"train.global_batch_size", "13"}, {"train.micro_batch", "1"}}),
               "train.micro_batch (test): with 1 sample per forward pass, ranks have different numbers", 2},
        Misuse{"LaterThanTheEnd",
               {{"ema.kind", "swa"}, {"ema.begin", "13"}},
               "ema.begin (test): the average would start at step 13, but the run ends at step 12"},  // 12.2.1
        Misuse{"TwoBegins",
               {{"ema.kind", "swa"}, {"ema.begin", "2+1epochs"}},
               "ema.begin (test): '2+1epochs' is neither a step, such as 100, nor an epoch, such as 2epochs"},
        Misuse{"Begin", {{"ema.kind", "swa"}, {"ema.begin", "-1"}}, "ema.begin (test): '-1' is neither a step"},
        Misuse{"AverageByTheClock",
               {{"ema.kind", "swa"}, {"ema.every", "10min"}},
               "ema.every (test): '10min' is not accepted: '10min' is a time, but this action follows steps or epochs"},
        Misuse{"DecayOfOne", {{"ema.kind", "ema"}, {"ema.decay", "1"}}, "ema.decay (test): with 1, the average"}),
    kName);

INSTANTIATE_TEST_SUITE_P(
    Wrappers, RunMisuseTest,  // 6.1.1 and 6.2.1
    ::testing::Values(Misuse{"Scale", with(kFp16, {{"train.loss_scale", "big"}}),
                             "train.loss_scale (test): 'big' is not a loss"},
                      Misuse{"ScaleTooLarge", with(kFp16, {{"train.loss_scale", "1e39"}}),
                             "train.loss_scale (test): loss scaling: the scale must be a positive float32 number"},
                      Misuse{"ScaleTooSmall", with(kFp16, {{"train.init_scale", "1e-50"}}),
                             "train.init_scale (test): loss scaling: the scale must be a positive float32 number"},
                      Misuse{"BackoffOfOne", with(kFp16, {{"train.backoff_factor", "1"}}),
                             "train.backoff_factor (test): loss scaling: backoff_factor must be between 0 and 1"},
                      Misuse{"ClipTwice",
                             {{"train.clip_norm", "1"}, {"train.clip_value", "1"}},
                             "train.clip_value (test): train.clip_norm is set, too"},
                      Misuse{"ClipNorm",
                             {{"train.clip_norm", "1"}, {"train.clip_norm_type", "0"}},
                             "train.clip_norm_type (test): '0' is neither a number above 0 nor inf"}),
    kName);

INSTANTIATE_TEST_SUITE_P(
    Groups, RunMisuseTest,  // 7
    ::testing::Values(
        Misuse{"Unknown", {{"optim.paramwise", "bias_lr_mul=2"}}, "key 'bias_lr_mul' is unknown"},
        Misuse{"NoDecay",
               {{"optim.paramwise", "norm_decay_mult=0"}, {"optim.name", "sgd"}},
               "norm_decay_mult needs optim.weight_decay"},
        Misuse{"NoOptions", {{"optim.paramwise", "custom:head"}}, "give options, such as custom:head,lr_mult=0.1"},
        Misuse{"NotANumber", {{"optim.paramwise", "custom:head,lr_mult=nan"}}, "lr_mult: 'nan' is not a number >= 0"},
        Misuse{"Pattern", {{"optim.paramwise", "re:[,lr_mult=2"}}, "is not a regular expression"}),
    kName);

}  // namespace misuse_test
}  // namespace lockstep::engine
