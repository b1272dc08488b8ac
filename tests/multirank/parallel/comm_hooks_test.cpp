// SPDX-License-Identifier: BSD-3-Clause
#include "comm_hooks.hpp"

#include <lockstep/core/error.hpp>

#include <torch/nn/modules/embedding.h>

#include <cmath>
#include <type_traits>

#include "parallel/reducers/bucket_reducer.hpp"
#include "support/counting_collectives.hpp"

namespace lockstep::parallel {
namespace comm_hooks_test {

using namespace comm_hooks;

// A hook is a function of a bucket that gives a completion; anything else does not compile.
static_assert(!std::is_constructible_v<CommHook, std::function<Completion(int)>>);
static_assert(!std::is_constructible_v<CommHook, std::function<int(const GradBucket&)>>);

// Case 75.
TEST_F(CommHooksTest, HooksDecideWhatTheAverageIs) {
  const auto own = [](double factor, double added) -> MakeHook {
    return [=](mpi::Collectives& all) {
      const CommHook averages = all_reduce_hook(all);
      return ChosenHook{.hook = [=](const GradBucket& bucket) -> Completion {
        return [=, wait = averages(bucket)] { return wait() * factor + added; };
      }};
    };
  };
  const auto wrapped = [](at::ScalarType type, CommHook (*inner)(mpi::Collectives&)) -> MakeHook {
    return [=](mpi::Collectives& all) { return ChosenHook{.hook = compressed_hook(type, inner(all), all)}; };
  };
  for (const bool is_static : {false, true}) {
    const auto expect_all = [&](const MakeHook& hook, float expected) {
      EXPECT_EQ(task_gradients(hook, is_static), std::vector<float>(16, expected));
    };
    expect_all({}, 0.25F);
    expect_all(make(all_reduce_hook), 0.25F);
    expect_all(make(fp16_hook), 0.25F);
    expect_all(make(bf16_hook), 0.25F);
    expect_all(wrapped(at::kHalf, all_reduce_hook), 0.25F);
    expect_all(wrapped(at::kBFloat16, all_reduce_hook), 0.25F);
    expect_all(wrapped(at::kHalf, bf16_hook), 0.25F);
    if (size() == 1) continue;  // one rank asks no hook
    expect_all(own(0, 2), 2.0F);
    expect_all(own(5, 0), 1.25F);
  }
}

TEST_F(CommHooksTest, TheAllReduceHookGivesTheBitsThatNoHookGives) {
  std::vector<std::vector<at::Tensor>> results;
  for (const MakeHook& hook : {MakeHook(), make(all_reduce_hook)}) {
    auto model = std::make_shared<TwoLayers>();
    auto wrapper = wrap(model, {.reducer = {.limits = {{8}, 8}}, .comm_hook = hook});
    auto& gradients = results.emplace_back();
    for (int step = 0; step < 3; ++step) {
      wrapper->parameters().drop_gradients();
      backward(*wrapper, samples_of(rank(), step));
      for (const at::Tensor& gradient : gradients_of(*model)) gradients.push_back(gradient);
    }
  }
  expect_equal(results[0], results[1]);
}

TEST_F(CommHooksTest, SixteenBitsAverageExactlyWhatTheyCanHold) {
  if (size() == 1) GTEST_SKIP() << "one rank rounds nothing";
  const at::Tensor shape = torch::arange(1, 13, at::kFloat).view({3, 4});
  const at::Tensor mine = shape * (size() * (rank() + 1));  // still integers after division by the number of ranks
  const at::Tensor expected = shape * (size() * (size() + 1) / 2);
  EXPECT_TRUE(at::equal(average(mine, make(fp16_hook)), expected));
  EXPECT_TRUE(at::equal(average(mine, make(bf16_hook)), expected));
  EXPECT_TRUE(at::equal(average(mine.to(at::kDouble), make(fp16_hook)), expected.to(at::kDouble)));
  // Rounding shows: 1 + 2^-12 has no place in either type.
  const at::Tensor fine = torch::full({1, 1}, 1 + std::ldexp(1.0F, -12));
  EXPECT_TRUE(at::equal(average(fine * size(), make(all_reduce_hook)), fine * size()));
  EXPECT_TRUE(at::equal(average(fine * size(), make(fp16_hook)), torch::full({1, 1}, static_cast<float>(size()))));
  EXPECT_TRUE(at::equal(average(fine * size(), make(bf16_hook)), torch::full({1, 1}, static_cast<float>(size()))));
}

TEST_F(CommHooksTest, DividingFirstKeepsLargeGradientsFinite) {
  if (size() == 1) GTEST_SKIP() << "one rank rounds nothing";
  const at::Tensor large = torch::full({2, 2}, rank() == 0 ? 98304.0F : 0.0F);  // float16 ends at 65504
  EXPECT_TRUE(at::allclose(average(large, make(fp16_hook)), torch::full({2, 2}, 98304.0F / static_cast<float>(size())),
                           1e-3, 0));
  const MakeHook rounds_first = [](mpi::Collectives& all) {
    return ChosenHook{.hook = compressed_hook(at::kHalf, all_reduce_hook(all), all)};
  };
  EXPECT_TRUE(average(large, rounds_first).isinf().all().item<bool>());
}

// Case 76.
TEST_F(CommHooksTest, WrongHooksAreDistinguished) {
  if (size() == 1) GTEST_SKIP() << "one rank asks no hook";
  auto model = std::make_shared<FourOnes>();
  auto wrapper = wrap(model);
  const auto set = [&](const CommHook& hook) { set_comm_hook(wrapper->reducer(), hook); };
  EXPECT_NE(error_of<ConfigError>([&] { set({}); }).find("is empty"), std::string::npos);
  set(noop_hook());
  EXPECT_NE(error_of<ConfigError>([&] { set(noop_hook()); }).find("is already set"), std::string::npos);

  const auto complaint = [&](const at::Tensor& result) {
    auto other = wrap(std::make_shared<FourOnes>());
    set_comm_hook(other->reducer(), [result](const GradBucket&) -> Completion { return [result] { return result; }; });
    return error_of<ConfigError>([&] { other->forward(torch::ones({})).backward(); });
  };
  EXPECT_EQ(complaint(torch::zeros({3})),
            "ddp: the communication hook returned 3 elements of float for a bucket of 16 of float");
  EXPECT_EQ(complaint(torch::zeros({16}, at::kDouble)),
            "ddp: the communication hook returned 16 elements of double for a bucket of 16 of float");

  auto late = wrap(std::make_shared<FourOnes>());
  late->forward(torch::ones({})).backward();
  EXPECT_NE(error_of<ConfigError>([&] { set_comm_hook(late->reducer(), noop_hook()); }).find("before the first step"),
            std::string::npos);
}

/// A bag of embeddings, whose gradient is sparse, and a dense layer.
class Bag : public SquaredModel {
 public:
  Bag() {
    torch::manual_seed(1);
    bag = register_module(
        "bag", torch::nn::EmbeddingBag(torch::nn::EmbeddingBagOptions(10, 10).mode(torch::kSum).sparse(true)));
    dense = register_module("dense", std::make_shared<models::Linear>(10, 2));
    to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& tokens) override { return models::run(*dense, bag->forward(tokens)); }

  torch::nn::EmbeddingBag bag = nullptr;
  std::shared_ptr<models::Linear> dense;
};

batch::Batch tokens_of(int rank) {
  return {torch::tensor({{rank % 10, 3, 5}, {7, (2 * rank + 1) % 10, 3}}, at::kLong),
          torch::ones({2, 2}, at::kDouble) * rank};
}

// Case 77.
TEST_F(CommHooksTest, SparseGradientsAreAveragedBesideAHook) {
  Bag alone;
  at::Tensor sum;
  for (int r = 0; r < size(); ++r) {
    alone.zero_grad();
    const batch::Batch batch = tokens_of(r);
    models::total_loss(alone.losses(alone.forward(batch.input()), batch.target())).backward();
    const at::Tensor part = alone.bag->weight.grad().to_dense() / size();
    sum = sum.defined() ? sum + part : part;
  }
  auto model = std::make_shared<Bag>();
  auto wrapper = wrap(model);
  int seen = 0;
  int last = 0;
  set_comm_hook(wrapper->reducer(), [&, hook = all_reduce_hook(*collectives_)](const GradBucket& bucket) {
    ++seen;
    if (bucket.is_last()) ++last;
    return hook(bucket);
  });
  for (int step = 0; step < 2; ++step) {
    wrapper->parameters().drop_gradients();
    backward(*wrapper, tokens_of(rank()));
    const at::Tensor gradient = model->bag->weight.grad();
    EXPECT_TRUE(gradient.is_sparse());
    EXPECT_TRUE(at::allclose(gradient.to_dense(), sum, 1e-12, 1e-14));
    EXPECT_TRUE(is_same_everywhere(model->dense->weight.grad()));
  }
  if (size() == 1) return;
  EXPECT_EQ(last, 2);  // the sparse bucket does not count
  EXPECT_EQ(seen, 2);
}

// Case 80: an optimizer that works on slices while they are averaged gives what one gives that comes afterwards.
TEST_F(CommHooksTest, AnUpdateInsideTheReductionGivesTheBitsOfOneAfterIt) {
  for (const char* rule : {"sgd", "adamw"}) {
    for (const bool is_static : {false, true}) {
      for (const bool is_part_frozen : {false, true}) {
        std::vector<std::vector<at::Tensor>> results;
        for (const bool is_whole : {false, true}) {
          auto model = std::make_shared<TwoLayers>(5, 37, 2);
          model->second->weight.set_requires_grad(!is_part_frozen);
          const std::vector<at::Tensor> before = values_of(*model);
          auto wrapper = wrap(model, {.reducer = {.has_static_graph = is_static},
                                      .shares_parameters = collectives_->local_size() > 1 && !is_static,
                                      .comm_hook = is_whole ? make(all_reduce_hook) : MakeHook()});
          auto optimizer = optimizer_of(*wrapper, rule, 0.01);
          for (int step = 0; step < 6; ++step) wrapper->train_step(samples_of(rank(), step, 2, 5, 2), optimizer, 1.0);
          results.push_back(values_of(*model));
          EXPECT_EQ(at::equal(before[2], results.back()[2]), is_part_frozen);
          EXPECT_TRUE(is_same_everywhere(*model));
        }
        expect_equal(results[0], results[1]);
      }
    }
  }
}

// Case 81.
TEST_F(CommHooksTest, TheNoopHookLeavesGradientsWhereTheyAreAndSendsNothing) {
  testing::CountingCollectives counting(make_collectives());
  Section ddp = Section::with_defaults("ddp", ddp_keys());
  ddp.set("comm_hook", "noop", "test");
  ddp.set("shared_parameters", "false", "test");
  auto model = std::make_shared<TwoLayers>();
  DistributedDataParallel wrapper(model, world_, counting, DdpOptions::from(ddp, counting));
  TwoLayers alone;
  auto optimizer = optimizer_of(wrapper);
  for (int step = 0; step < 4; ++step) {
    counting.take_counts();
    const auto sent = [&counting] {
      const auto counts = counting.take_counts();
      return counts.all() - counts.buckets;  // the second step has new buckets
    };
    const batch::Batch batch = samples_of(rank(), step);
    alone.zero_grad();
    models::total_loss(alone.losses(alone.forward(batch.input()), batch.target())).backward();
    backward(wrapper, batch);
    expect_equal(gradients_of(*model), gradients_of(alone));
    EXPECT_EQ(sent(), 0);
    wrapper.parameters().drop_gradients();
  }
  wrapper.train_step(samples_of(rank(), 4), optimizer, 1.0);
  EXPECT_EQ(counting.take_counts().all(), 0);
  EXPECT_EQ(is_same_everywhere(model->first->weight), size() == 1);
}

TEST_F(CommHooksTest, ASilentHookComplainsOnTheRankAlone) {
  if (size() == 1) GTEST_SKIP() << "one rank asks no hook";
  auto model = std::make_shared<TwoLayers>();
  auto wrapper = wrap(model);
  set_comm_hook(wrapper->reducer(), noop_hook(), /*is_silent=*/true);
  const std::string text = error_of<ConfigError>([&] {
    const batch::Batch batch = samples_of(rank(), 0);
    if (rank() != 1) return backward(*wrapper, batch);
    const at::Tensor output = wrapper->run([&] { return models::run(*model->first, batch.input()); });
    output.sum().backward();
    wrapper->reducer().finish();
  });
  EXPECT_EQ(text.empty(), rank() != 1);
  EXPECT_EQ(text.find("'l1.weight' (index 2) on rank 1") != std::string::npos, rank() == 1) << text;
}

TEST_F(CommHooksTest, HooksAreChosenByName) {
  Section ddp = Section::with_defaults("ddp", ddp_keys());
  ddp.set("shared_parameters", "false", "test");
  EXPECT_FALSE(DdpOptions::from(ddp, *collectives_).comm_hook);
  for (const CommHookRow& row : builtin_comm_hooks()) {
    ddp.set("comm_hook", row.name, "test");
    ddp.set("powersgd_start_step", "2", "test");
    auto model = std::make_shared<TwoLayers>();
    auto wrapper = wrap(model, DdpOptions::from(ddp, *collectives_));
    EXPECT_EQ(wrapper->hook_memory() != nullptr, row.name == "powersgd");
    auto optimizer = optimizer_of(*wrapper);
    for (int step = 0; step < 4; ++step) wrapper->train_step(samples_of(rank(), step), optimizer);
    EXPECT_EQ(is_same_everywhere(*model), row.name != "noop" || size() == 1) << row.name;
  }
  EXPECT_THROW(ddp.set("comm_hook", "fp17", "test"), ConfigError);
  ddp.set("comm_hook", "powersgd", "test");
  ddp.set("powersgd_start_step", "1", "test");
  EXPECT_THROW(wrap(std::make_shared<TwoLayers>(), DdpOptions::from(ddp, *collectives_)), ConfigError);
}

}  // namespace comm_hooks_test
}  // namespace lockstep::parallel
