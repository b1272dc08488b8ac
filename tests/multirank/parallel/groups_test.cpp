// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include "parallel/comm_hooks/post_local_sgd.hpp"
#include "parallel/store/parameter_store.hpp"
#include "training.hpp"

namespace lockstep::parallel {
namespace groups_test {

constexpr double kLr = 0.125;

/// One step of plain SGD on the mean loss of all samples of `batches`, as one process takes it.
void step_alone(TwoLayers& model, const std::vector<batch::Batch>& batches) {
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> targets;
  for (const batch::Batch& batch : batches) {
    inputs.push_back(batch.input());
    targets.push_back(batch.target());
  }
  model.zero_grad();
  models::total_loss(model.losses(model.forward(at::cat(inputs)), at::cat(targets))).backward();
  const torch::NoGradGuard no_grad;
  for (const auto& parameter : model.parameters()) parameter.add_(parameter.grad(), -kLr);
}

class GroupsTest : public TrainingTest {};

// Even and odd ranks train two models at once.
TEST_F(GroupsTest, TwoGroupsOfRanksTrainTwoModels) {
  const int color = rank() % 2;
  const mpi::Communicator group = world_.split(color);
  for (const bool shares : {false, true}) {
    const auto collectives = collectives_->split(color);
    EXPECT_EQ(collectives->world_size(), group.size());
    const std::int64_t width = 4 + color;
    auto model = std::make_shared<TwoLayers>(3, width, 2);
    if (group.rank() != 0) {
      const torch::NoGradGuard no_grad;
      for (auto& parameter : model->parameters()) parameter.zero_();  // the counts are those of the group's first rank
    }
    DistributedDataParallel wrapper(model, group, *collectives, {.shares_parameters = shares});
    auto optimizer = optimizer_of(wrapper, "sgd", kLr);
    TwoLayers alone(3, width, 2);
    for (int step = 0; step < 5 + color; ++step) {  // the groups owe each other nothing
      std::vector<batch::Batch> batches;
      for (int r = color; r < size(); r += 2) batches.push_back(samples_of(r, step));
      step_alone(alone, batches);
      wrapper.train_step(samples_of(rank(), step), optimizer);
    }
    expect_close(values_of(*model), values_of(alone));
  }
}

TEST_F(GroupsTest, TwoWrappersOfTheSameRanksTrainTwoModels) {
  auto first = std::make_shared<TwoLayers>();
  auto second = std::make_shared<TwoLayers>(3, 7, 2);
  auto one = wrap(first);
  auto two = wrap(second);
  auto optimizer_one = optimizer_of(*one, "sgd", kLr);
  auto optimizer_two = optimizer_of(*two, "sgd", kLr);
  TwoLayers alone(3, 7, 2);
  for (int step = 0; step < 4; ++step) {
    std::vector<batch::Batch> batches;
    for (int r = 0; r < size(); ++r) batches.push_back(samples_of(r, step));
    step_alone(alone, batches);
    one->train_step(samples_of(rank(), step + 1), optimizer_one);
    two->train_step(samples_of(rank(), step), optimizer_two);
  }
  expect_close(values_of(*second), values_of(alone));
}

// Rank r has r + 1 samples.
TEST_F(GroupsTest, WeighingSamplesGivesTheGradientOfTheWholeBatch) {
  Section ddp = Section::with_defaults("ddp", ddp_keys());
  for (const bool weighs : {true, false}) {
    ddp.set("weigh_samples", weighs ? "true" : "false", "test");
    TwoLayers alone;
    auto model = std::make_shared<TwoLayers>();
    auto wrapper = wrap(model, DdpOptions::from(ddp, *collectives_));
    auto optimizer = optimizer_of(*wrapper, "sgd", kLr);
    for (int step = 0; step < 3; ++step) {
      std::vector<batch::Batch> batches;
      for (int r = 0; r < size(); ++r) batches.push_back(samples_of(r, step, r + 1));
      step_alone(alone, batches);
      wrapper->train_step(batches[static_cast<std::size_t>(rank())], optimizer);
    }
    if (weighs) expect_close(values_of(*model), values_of(alone));
    const bool is_plain_enough = weighs || size() == 1;
    EXPECT_EQ(at::allclose(model->first->weight, alone.first->weight, 1e-6, 1e-8), is_plain_enough);
  }
}

// Each of two micro_batches is weighed by its own samples, and both count the same.
TEST_F(GroupsTest, MicroBatchesAreWeighedOneByOne) {
  auto model = std::make_shared<TwoLayers>();
  auto wrapper = wrap(model, {.weighs_samples = true});
  auto optimizer = optimizer_of(*wrapper, "sgd", kLr, 2);
  TwoLayers alone;
  alone.zero_grad();
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
    std::vector<at::Tensor> inputs;
    std::vector<at::Tensor> targets;
    for (int r = 0; r < size(); ++r) {
      const batch::Batch batch = samples_of(r, micro_batch, 1 + (r + micro_batch) % 3);
      inputs.push_back(batch.input());
      targets.push_back(batch.target());
    }
    (models::total_loss(alone.losses(alone.forward(at::cat(inputs)), at::cat(targets))) / 2).backward();
    wrapper->train_step(samples_of(rank(), micro_batch, 1 + (rank() + micro_batch) % 3), optimizer);
  }
  const torch::NoGradGuard no_grad;
  for (const auto& parameter : alone.parameters()) parameter.add_(parameter.grad(), -kLr);
  expect_close(values_of(*model), values_of(alone));
}

/// Gradients of one rank's batch, at the parameters of `model`.
std::vector<at::Tensor> gradients_alone(TwoLayers& model, int rank, int step) {
  model.zero_grad();
  loss_of(model, samples_of(rank, step)).backward();
  return gradients_of(model);
}

std::vector<at::Tensor> mean_of(const std::vector<std::vector<at::Tensor>>& lists, int color, int colors) {
  std::vector<at::Tensor> means;
  for (std::size_t i = 0; i < lists[0].size(); ++i) {
    std::vector<at::Tensor> members;
    for (std::size_t r = static_cast<std::size_t>(color); r < lists.size(); r += static_cast<std::size_t>(colors)) {
      members.push_back(lists[r][i]);
    }
    means.push_back(at::stack(members).mean(0));
  }
  return means;
}

// Every element of the parameters of rank r is r before the averages, which are then exact.
TEST_F(GroupsTest, PostLocalSgdAveragesHierarchically) {
  if (size() != 4) GTEST_SKIP() << "two groups of two ranks";
  const auto alone = collectives_->split(rank());
  const auto pair = collectives_->split(rank() / 2);
  const PostLocalSgd local(*collectives_, *alone,
                           {.start_step = 0, .averages = {{2, pair.get()}, {4, collectives_.get()}}});
  auto model = std::make_shared<TwoLayers>();
  auto wrapper = wrap(model, {.comm_hook = [&](mpi::Collectives&) { return local.choice(); }});
  auto optimizer = optimizer_of(*wrapper, "sgd", 0);
  // The first step counts as step 0, which both periods divide.
  const double expected[] = {1.5, 0, rank() / 2 * 2 + 0.5, 0, 1.5};
  for (int step = 0; step < 5; ++step) {
    wrapper->store().write_whole([&] {
      const torch::NoGradGuard no_grad;
      for (const at::Tensor& parameter : model->parameters()) parameter.fill_(rank());
    });
    wrapper->train_step(samples_of(rank(), step), optimizer);
    local.after_update(*wrapper);
    const double value = step % 2 == 0 ? expected[step] : rank();
    for (const at::Tensor& parameter : model->parameters()) {
      EXPECT_TRUE(at::equal(parameter, at::full_like(parameter, value))) << step;
    }
  }
  local.average_all(*wrapper);
  EXPECT_TRUE(is_same_everywhere(*model));
}

TEST_F(GroupsTest, PostLocalSgdAveragesGradientsInGroupsAndParametersNowAndThen) {
  const PostLocalSgdOptions options{.start_step = 2, .averages = {{3, collectives_.get()}}};
  const int colors = std::min(2, size());
  const auto group = collectives_->split(rank() % 2);
  const PostLocalSgd local(*collectives_, *group, options);
  auto model = std::make_shared<TwoLayers>();
  auto wrapper = wrap(model, {.comm_hook = [&](mpi::Collectives&) { return local.choice(); }});
  auto optimizer = optimizer_of(*wrapper, "sgd", kLr);
  TwoLayers alone;
  std::vector<std::vector<at::Tensor>> values(static_cast<std::size_t>(size()), values_of(alone));  // values by rank
  const torch::NoGradGuard no_grad;
  for (int step = 0; step < 8; ++step) {
    std::vector<std::vector<at::Tensor>> gradients;
    for (int r = 0; r < size(); ++r) {
      const torch::AutoGradMode with_gradients(true);
      for (std::size_t i = 0; i < values[0].size(); ++i) {
        alone.parameters()[i].data().copy_(values[static_cast<std::size_t>(r)][i]);
      }
      gradients.push_back(gradients_alone(alone, r, step));
    }
    for (int r = 0; r < size(); ++r) {
      const std::vector<at::Tensor> mean = step < 2 ? mean_of(gradients, 0, 1) : mean_of(gradients, r % 2, colors);
      for (std::size_t i = 0; i < mean.size(); ++i) {
        values[static_cast<std::size_t>(r)][i] = values[static_cast<std::size_t>(r)][i] - kLr * mean[i];
      }
    }
    const bool is_time = step == 2 || step == 5;
    if (is_time) values.assign(values.size(), mean_of(values, 0, 1));
    {
      const torch::AutoGradMode with_gradients(true);
      wrapper->train_step(samples_of(rank(), step), optimizer);
    }
    local.after_update(*wrapper);
    expect_close(values_of(*model), values[static_cast<std::size_t>(rank())]);
    EXPECT_EQ(is_same_everywhere(*model), step < 3 || is_time || size() == 1) << step;
  }
  if (size() == 1) return;
  EXPECT_EQ(wrapper->hook_memory()->state().integers.at("step"), 8);
  wrapper->hook_memory()->load_state({.tensors = {}, .integers = {{"step", 0}}});
  {
    const torch::AutoGradMode with_gradients(true);
    backward(*wrapper, samples_of(rank(), 0));  // start_step was not called again yet: an average over all ranks
  }
  EXPECT_TRUE(is_same_everywhere(model->first->weight.grad()));
  EXPECT_THROW(wrapper->hook_memory()->load_state({}), CheckpointError);
  EXPECT_THROW(PostLocalSgd(*collectives_, *group, {.averages = {{0, collectives_.get()}}}), ConfigError);
  EXPECT_THROW(PostLocalSgd(*collectives_, *group, {}), ConfigError);

  auto sharing = wrap(std::make_shared<TwoLayers>(), {.shares_parameters = true});
  EXPECT_THROW(local.after_update(*sharing), ConfigError);
}

}  // namespace groups_test
}  // namespace lockstep::parallel
