// SPDX-License-Identifier: BSD-3-Clause
// Parameter groups in a run.
#include "optim/groups/param_groups.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include "engine/resume/run_state.hpp"
#include "small_run.hpp"

namespace lockstep::engine {
namespace param_groups_test {

using Names = std::vector<std::string>;

Names names_of(SmallRun& run) {
  Names names;
  for (const optim::ParamGroup& group : run.updates.first().optimizer().groups()) {
    names.push_back(group.name);
  }
  return names;
}

const optim::ParamGroup& group_of(SmallRun& run, const std::string& name) {
  for (const optim::ParamGroup& group : run.updates.first().optimizer().groups()) {
    if (group.name == name) return group;
  }
  throw std::runtime_error("no group " + name);
}

class ParamGroupsRunTest : public ::testing::Test {
 protected:
  mpi::Communicator world_ = mpi::Communicator::world();
};

// A test of resnet18, at its smallest: 6 layers.
TEST_F(ParamGroupsRunTest, AModelStatesTheRolesOfItsParameters) {
  const Settings resnet = {{"model.name", "resnet18"},
                           {"model.width", "1"},
                           {"optim.weight_decay", "0.1"},
                           {"optim.lr", "0.5"},
                           {"optim.paramwise", "norm_decay_mult=0"},
                           {"optim.paramwise", "layer_decay=0.5"}};
  SmallRun run(world_, with(kTwelveSteps, resnet));
  EXPECT_EQ(names_of(run),
            (Names{"decay", "lr*0.03125", "lr*0.03125+no_decay", "lr*0.0625", "lr*0.0625+no_decay", "lr*0.125",
                   "lr*0.125+no_decay", "lr*0.25", "lr*0.25+no_decay", "lr*0.5", "lr*0.5+no_decay"}));
  EXPECT_EQ(group_of(run, "decay").parameters, (Names{"fc.weight", "fc.bias"}));
  EXPECT_EQ(group_of(run, "lr*0.03125+no_decay").parameters, (Names{"bn1.weight", "bn1.bias"}));
  EXPECT_EQ(group_of(run, "lr*0.03125+no_decay").base_lr, 0.015625);
}

// An lr of 0 leaves its parameters as they were, and all others move.
TEST_F(ParamGroupsRunTest, EachGroupIsTrainedByItsOptions) {
  SmallRun run(world_, with(kTwelveSteps, {{"optim.paramwise", "custom:hidden0,lr=0"}}));
  const auto values = [&run](const std::string& name) {
    const at::Tensor parameter = *run.model.wrapper->model().named_parameters().find(name);
    const at::Tensor copy = parameter.detach().clone().contiguous();
    return std::vector<float>(copy.const_data_ptr<float>(), copy.const_data_ptr<float>() + copy.numel());
  };
  const auto frozen = values("hidden0.weight");
  const auto trained = values("head.weight");
  run.trainer.train();
  EXPECT_EQ(values("hidden0.weight"), frozen);
  EXPECT_NE(values("head.weight"), trained);
}

// The same groups in other words are the same run.
TEST_F(ParamGroupsRunTest, ACheckpointDoesNotDependOnHowGroupsAreWritten) {
  const Settings base = with(kTwelveSteps, {{"optim.weight_decay", "0.1"}});
  const Settings one = {{"optim.no_decay", "norms_biases"}};
  const Settings other = {{"optim.paramwise", "bias_decay_mult=0"}};
  SmallRun straight(world_, with(base, one));
  straight.trainer.train();
  SmallRun first(world_, with(with(base, one), {{"train.max_steps", "5"}}));
  first.trainer.train();
  const checkpoints::Archive archive = capture(first.trainer, "", true);
  SmallRun second(world_, with(base, other));
  restore(second.trainer, archive);
  second.trainer.train();
  EXPECT_EQ(second.losses, std::vector<double>(straight.losses.begin() + 5, straight.losses.end()));
  SmallRun third(world_, with(base, {{"optim.paramwise", "custom:head,lr_mult=0.1"}}));
  EXPECT_THROW(restore(third.trainer, archive), CheckpointError);
}

// Weight decay is configuration: other values of it, and other parameters without it, are no other state.
TEST_F(ParamGroupsRunTest, AChangedWeightDecayResumes) {
  const Settings base = with(kTwelveSteps, {{"optim.weight_decay", "0.1"}, {"optim.no_decay", "norms_biases"}});
  SmallRun first(world_, with(base, {{"train.max_steps", "5"}}));
  first.trainer.train();
  const checkpoints::Archive archive = capture(first.trainer, "", true);
  for (const Settings& other : {Settings{{"optim.no_decay", "none"}}, Settings{{"optim.weight_decay", "0"}},
                                Settings{{"optim.paramwise", "custom:hidden0,decay_mult=0.5"}}}) {
    SmallRun second(world_, with(base, other));
    EXPECT_NO_THROW(restore(second.trainer, archive)) << other.front().first;
    second.trainer.train();
    EXPECT_EQ(second.losses.size(), 7U) << other.front().first;
  }
}

// Older versions decayed the tokens and positions of a vit. The groups of their checkpoints contain other parameters,
// and can have another order.
TEST_F(ParamGroupsRunTest, AVisionTransformerOfAnOlderVersionResumes) {
  const Settings vit = {{"model.name", "vit"},
                        {"model.patch_size", "14"},
                        {"model.embed_dim", "8"},
                        {"model.depth", "1"},
                        {"model.num_heads", "2"},
                        {"optim.weight_decay", "0.1"},
                        {"optim.no_decay", "norms_biases"},
                        {"optim.paramwise", "layer_decay=0.5"}};
  Settings base = kTwelveSteps;
  std::erase_if(base, [](const auto& setting) { return setting.first == "model.hidden"; });
  SmallRun first(world_, with(with(base, vit), {{"train.max_steps", "5"}}));
  EXPECT_EQ(group_of(first, "lr*0.25+no_decay").parameters, (Names{"cls_token", "pos_embed", "patch_embed.proj.bias"}));
  first.trainer.train();
  checkpoints::Archive archive = capture(first.trainer, "", true);
  const Names names = names_of(first);
  ASSERT_GE(names.size(), 3U);
  archive.set("/optim/0/groups/1", "name", names[2]);
  archive.set("/optim/0/groups/2", "name", names[1]);
  SmallRun second(world_, with(base, vit));
  EXPECT_NO_THROW(restore(second.trainer, archive));
  second.trainer.train();
  EXPECT_EQ(second.losses.size(), 7U);
}

struct Scaling {
  Settings settings;
  double lr;
};

// 12 samples in a step, 4 of them in a forward of each rank at most.
TEST_F(ParamGroupsRunTest, RatesFollowTheBatch) {
  const Settings base = with(kTwelveSteps, {{"optim.lr", "0.5"}, {"train.micro_batch", "2"}});
  const Settings scaled = {{"optim.auto_scale_lr", "true"}, {"optim.base_batch_size", "6"}};
  const double per_forward = std::min(12, 2 * world_.size());
  for (const Scaling& row : {Scaling{{}, 0.5}, Scaling{scaled, 1},
                             Scaling{with(scaled, {{"optim.include_accumulation", "false"}}), 0.5 * per_forward / 6}}) {
    SmallRun run(world_, with(base, row.settings));
    EXPECT_EQ(group_of(run, "all").base_lr, row.lr);
    run.trainer.train();
    EXPECT_EQ(group_of(run, "all").options.at("lr"), row.lr);
  }
  EXPECT_THROW(SmallRun(world_, with(base, {{"optim.auto_scale_lr", "true"}})), ConfigError);
}

TEST_F(ParamGroupsRunTest, RatesAreNotScaledBehindASchedulesBack) {
  SmallRun run(world_, kTwelveSteps);
  EXPECT_NO_THROW(optim::scale_lr(run.updates.first().optimizer().groups(), {.batch = 1, .base_batch = 1}));
  run.trainer.train();
  EXPECT_THROW(optim::scale_lr(run.updates.first().optimizer().groups(), {.batch = 1, .base_batch = 1}),
               std::logic_error);
}

// The plan that `trainer config --groups` and `trainer schedule` show is what a run does.
TEST_F(ParamGroupsRunTest, APlanIsWhatARunDoes) {
  const Settings settings = with(kTwelveSteps, {{"optim.paramwise", "custom:head,lr_mult=0.5"},
                                                {"sched.rule", "cosine"},
                                                {"sched.rule", "linear,of=momentum,group=rest"}});
  const RunPlan plan = engine::plan(world_, sections_of(settings), builtin_registry(), 100);
  SmallRun run(world_, settings);
  ASSERT_EQ(plan.groups.size(), 2U);
  EXPECT_EQ(plan.groups[1].name, "lr*0.5");
  EXPECT_EQ(plan.groups[1].parameters.at(0).name, "head.weight");
  EXPECT_EQ(plan.groups[1].parameters.at(0).count, 160);
  EXPECT_EQ(plan.groups[1].options, group_of(run, "lr*0.5").options);
  EXPECT_EQ(plan.total_steps, 12);
  ASSERT_EQ(plan.curves.size(), 3U);
  EXPECT_EQ(plan.curves[1].option, "beta1");
  EXPECT_EQ(plan.curves[2].group, "lr*0.5");
  std::vector<double> rates;
  for (std::size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(plan.curves[0].values.at(i).first, static_cast<std::int64_t>(i));
    rates.push_back(plan.curves[0].values[i].second);
    EXPECT_EQ(plan.curves[2].values[i].second, rates.back() / 2);
  }
  std::vector<double> driven;
  struct RateHook : Hook {
    explicit RateHook(std::vector<double>& target) : rates(&target) {}
    void after_step(RunView&, const StepReport& report) override { rates->push_back(report.lr); }
    std::vector<double>* rates;
  };
  run.trainer.add_hook(Priority::normal, std::make_unique<RateHook>(driven));
  run.trainer.train();
  EXPECT_EQ(driven, rates);
}

}  // namespace param_groups_test
}  // namespace lockstep::engine
