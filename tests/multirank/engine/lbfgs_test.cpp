// SPDX-License-Identifier: BSD-3-Clause
// Steps that evaluate the loss several times: all ranks decide alike, and the numbers are those of one rank.
#include <lockstep/core/error.hpp>
#include <lockstep/engine/stateful.hpp>
#include <lockstep/models/layers.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "checkpoints/store/store.hpp"
#include "engine/resume/run_state.hpp"
#include "optim/closure/closure_step.hpp"
#include "small_run.hpp"
#include "support/archives.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::engine {
namespace lbfgs_test {

/// Mean brightness of 7 x 7 fields, N x 16.
at::Tensor fields_of(const at::Tensor& input) { return at::avg_pool2d(input, 7).flatten(1); }

/// Guesses a digit's value by least squares.
class LeastSquares : public models::Model {
 public:
  LeastSquares() { linear_ = register_module("linear", std::make_shared<models::Linear>(16, 1)); }
  at::Tensor forward(const at::Tensor& input) override { return models::run(*linear_, fields_of(input)); }
  models::LossMap losses(const at::Tensor& output, const at::Tensor& target) const override {
    return {{"loss", (output.flatten() - target).square().mean() / 2}};
  }

 private:
  std::shared_ptr<models::Linear> linear_;
};

/// A linear layer whose weight [10, 16] lies column by column.
class Strided : public models::Model {
 public:
  Strided() { weight_ = register_parameter("weight", torch::zeros({16, 10}).t()); }
  at::Tensor forward(const at::Tensor& input) override { return fields_of(input).mm(weight_.t()); }

 private:
  at::Tensor weight_;
};

/// Evaluates where it is, thrice, and notes whether that is the same; then a step of gradient descent.
bool is_same_again = true;
void descend(optim::ClosureStep& problem) {
  const optim::ClosureStep::LossPoint first = problem.evaluate();
  for (int i = 0; i < 2; ++i) {
    const optim::ClosureStep::LossPoint again = problem.evaluate();
    is_same_again = is_same_again && again.loss == first.loss;
    for (std::size_t k = 0; k < first.gradient.size(); ++k) {
      is_same_again = is_same_again && at::equal(again.gradient[k], first.gradient[k]);
    }
  }
  problem.move_to(problem.position(), -problem.options().at("lr"), first.gradient);
}

const Registry& registry_with_descent() {
  static const Registry registry = [] {
    Registry all;
    all.models.push_back({"least_squares", "a linear layer and a quadratic loss", {}, [](const Section&, const Task&) {
                            return std::shared_ptr<models::Model>(std::make_shared<LeastSquares>());
                          }});
    all.models.push_back({"strided", "a weight that is not contiguous", {}, [](const Section&, const Task&) {
                            return std::shared_ptr<models::Model>(std::make_shared<Strided>());
                          }});
    all.rules.push_back({.name = "descent",
                         .help = "gradient descent that looks thrice",
                         .keys = {},
                         .read = [](const Section&) { return optim::Options(); },
                         .state_names = [](const optim::Options&) { return std::vector<std::string>(); },
                         .kind = optim::ClosureRule{.step = descend},
                         .counts_every_step = true});
    return all;
  }();
  return registry;
}

const Settings kSearching = {{"optim.name", "lbfgs"},
                             {"optim.lr", "1"},
                             {"optim.max_iter", "4"},
                             {"optim.history_size", "6"},
                             {"optim.line_search_fn", "strong_wolfe"}};
const Settings kSmall = with(kSearching, {{"model.name", "mlp"},
                                          {"model.hidden", "16"},
                                          {"model.dropout", "0.2"},
                                          {"data.train_size", "100"},
                                          {"data.workers", "0"},
                                          {"train.global_batch_size", "24"},
                                          {"train.max_steps", "8"}});

class LbfgsTest : public ::testing::Test {
 protected:
  LbfgsTest() : shared_(world_.broadcast(folder_.path())) {}
  ~LbfgsTest() override { world_.barrier(); }

  /// The values that a run holds in the end, read from a file on every rank.
  checkpoints::Archive archive_of(SmallRun& run) {
    const mpi::Communicator& ranks = run.resources.world;
    const std::string folder = shared_ + "/" + std::to_string(++archives_);
    const checkpoints::Archive archive = capture(run.trainer, "", ranks.is_root());
    if (ranks.is_root()) checkpoints::write(folder, run.trainer.progress().step, archive);
    ranks.barrier();
    return checkpoints::read(folder + "/" + checkpoints::folder_name(run.trainer.progress().step));
  }

  mpi::Communicator world_ = mpi::Communicator::world();
  testing::TemporaryFolder folder_;
  std::string shared_;  // rank 0's folder
  int archives_ = 0;
};

// Full batches of a convex problem: the least loss is that of the normal equations, from whatever number of ranks and
// micro_batches.
TEST_F(LbfgsTest, ReachesTheLeastSquaresOptimum) {
  const Settings settings = with(kSearching, {{"model.name", "least_squares"},
                                              {"train.precision", "fp64"},
                                              {"data.train_size", "120"},
                                              {"train.global_batch_size", "120"},
                                              {"train.micro_batch", "17"},
                                              {"train.max_steps", "15"},
                                              {"optim.max_iter", "10"},
                                              {"optim.history_size", "20"}});
  SmallRun run(world_, settings, registry_with_descent());
  run.trainer.train();
  const batch::Batch batch = run.splits.train->get(batch::draws_in_order(0, 120));
  const at::Tensor inputs = at::cat({fields_of(batch.input().to(at::kDouble)), at::ones({120, 1}, at::kDouble)}, 1);
  const at::Tensor targets = batch.target().to(at::kDouble).unsqueeze(1);
  const at::Tensor fit = at::linalg_pinv(inputs).mm(targets);
  const double min = (inputs.mm(fit) - targets).square().mean().item<double>() / 2;
  EXPECT_GT(run.losses.front(), 2 * min);
  EXPECT_GE(run.losses.back(), min * (1 - 1e-12));
  EXPECT_NEAR(run.losses.back(), min, 1e-6 * min);
}

// Another number of ranks sums in another order; the searches amplify it.
TEST_F(LbfgsTest, SeveralRanksTrainAsOne) {
  const Settings settings = with(kSmall, {{"train.precision", "fp64"}, {"model.dropout", "0"}});
  SmallRun combined(world_, settings);
  combined.trainer.train();
  const mpi::Communicator alone = world_.split(world_.rank());
  SmallRun one(alone, settings);
  one.trainer.train();
  ASSERT_EQ(combined.losses.size(), 8U);
  EXPECT_LT(one.losses.back(), one.losses.front());
  for (std::size_t i = 0; i < one.losses.size(); ++i) {
    EXPECT_NEAR(combined.losses[i], one.losses[i], 1e-7 * one.losses[i]) << i;
  }
}

TEST_F(LbfgsTest, SharedAndPrivateParametersGiveTheSameBits) {
  SmallRun shared(world_, with(kSmall, {{"ddp.check_writes", "true"}}));
  shared.trainer.train();
  SmallRun own(world_, with(kSmall, {{"ddp.shared_parameters", "false"}}));
  own.trainer.train();
  EXPECT_EQ(own.losses, shared.losses);
  EXPECT_EQ(own.norms, shared.norms);
  EXPECT_EQ(testing::differences(archive_of(own), archive_of(shared)), "");
}

// Holds with dropout and several micro_batches; and what descends by such evaluations does what sgd does.
TEST_F(LbfgsTest, AnEvaluationRepeatsItself) {
  const Settings common = with(kSmall, {{"optim.lr", "0.1"}, {"train.micro_batch", "5"}, {"train.precision", "fp64"}});
  is_same_again = true;
  SmallRun descent(world_, with(common, {{"optim.name", "descent"}}), registry_with_descent());
  descent.trainer.train();
  EXPECT_TRUE(is_same_again);
  SmallRun sgd(world_, with(common, {{"optim.name", "sgd"}}), registry_with_descent());
  sgd.trainer.train();
  for (std::size_t i = 0; i < sgd.losses.size(); ++i) {
    EXPECT_NEAR(descent.losses[i], sgd.losses[i], 1e-12 * sgd.losses[i]) << i;
  }
}

TEST_F(LbfgsTest, ARestoredRunContinuesBitForBit) {
  for (const char* shares : {"true", "false"}) {
    const Settings settings = with(kSmall, {{"ddp.shared_parameters", shares}});
    SmallRun straight(world_, settings);
    straight.trainer.train();
    SmallRun half(world_, with(settings, {{"train.max_steps", "4"}}));
    half.trainer.train();
    const checkpoints::Archive midway = archive_of(half);
    EXPECT_GT(midway.real("/optim/0/numbers", "learnt"), 6);  // the history went round
    SmallRun resumed(world_, settings);
    restore(resumed.trainer, midway);
    resumed.trainer.train();
    EXPECT_EQ(resumed.losses, std::vector<double>(straight.losses.begin() + 4, straight.losses.end()));
    EXPECT_EQ(testing::differences(archive_of(resumed), archive_of(straight)), "");
    // It continues otherwise without its memory.
    SmallRun forgetful(world_, settings);
    restore(forgetful.trainer, midway, {.resets_optim = true});
    forgetful.trainer.train();
    EXPECT_EQ(forgetful.losses.front(), resumed.losses.front());
    EXPECT_NE(forgetful.losses, resumed.losses);
  }
}

// Two values from 0 by two iterations: the one that was learnt from, and the last one.
TEST_F(LbfgsTest, HistoriesLieLikeTheirParameter) {
  SmallRun run(world_,
               with(kSmall, {{"model.name", "strided"},
                             {"train.max_steps", "1"},
                             {"optim.line_search_fn", "none"},
                             {"optim.max_iter", "2"},
                             {"optim.max_eval", "9"},
                             {"optim.lr", "0.5"}}),
               registry_with_descent());
  run.trainer.train();
  const checkpoints::Archive archive = archive_of(run);
  const auto state = [&archive](const std::string& slot) {
    return tensor_over(archive.array("/optim/0/state/" + slot + "/weight"));
  };
  EXPECT_EQ(archive.real("/optim/0/numbers", "learnt"), 1);
  EXPECT_EQ(state("old_stps").sizes(), at::IntArrayRef({6, 10, 16}));
  const at::Tensor weight = tensor_over(archive.array("/model/params/weight"));
  EXPECT_GT(weight.abs().max().item<double>(), 0.01);
  EXPECT_TRUE(at::allclose(weight, state("old_stps")[0] + archive.real("/optim/0/numbers", "t") * state("d")));
}

TEST_F(LbfgsTest, AStateThatDoesNotFitIsRefused) {
  SmallRun saved(world_, with(kSmall, {{"train.max_steps", "2"}}));
  saved.trainer.train();
  const checkpoints::Archive archive = archive_of(saved);
  const auto refusal = [&](const Settings& changes, const checkpoints::Archive& from) -> std::string {
    SmallRun other(world_, with(kSmall, changes));
    try {
      restore(other.trainer, from);
    } catch (const CheckpointError& error) {
      EXPECT_TRUE(error.is_agreed());
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal({}, archive), "");
  const std::string shapes = refusal({{"optim.history_size", "9"}}, archive);
  EXPECT_NE(
      shapes.find("/optim/0/state/old_stps/hidden0.weight is float32 [6, 16, 784], the run has float32 [9, 16, 784]"),
      std::string::npos)
      << shapes;
  EXPECT_NE(shapes.find("resume.reset=optim"), std::string::npos) << shapes;
  EXPECT_NE(refusal({{"optim.name", "adamw"}}, archive).find("its optimizer is lbfgs, the run's is adamw"),
            std::string::npos);
  for (const double value : {-1.0, 1e300}) {
    checkpoints::Archive broken = archive;
    broken.set("/optim/0/numbers", "learnt", value);
    const std::string numbers = refusal({}, broken);
    EXPECT_NE(numbers.find("lacks some of its numbers"), std::string::npos) << numbers;
  }
}

TEST_F(LbfgsTest, WhatChangesGradientsIsRefusedOnEveryRank) {
  const std::vector<std::pair<std::string, std::string>> refused = {{"train.clip_value", "1"},
                                                                    {"train.precision", "fp16"},
                                                                    {"ddp.comm_hook", "powersgd"},
                                                                    {"optim.weight_decay", "0.1"}};
  for (const auto& setting : refused) {
    try {
      SmallRun run(world_, with(kSmall, {setting}));
      ADD_FAILURE() << setting.first;
    } catch (const ConfigError& error) {
      EXPECT_TRUE(error.is_agreed());
      EXPECT_NE(std::string(error.what()).find(setting.first), std::string::npos) << error.what();
    }
  }
}

}  // namespace lbfgs_test
}  // namespace lockstep::engine
