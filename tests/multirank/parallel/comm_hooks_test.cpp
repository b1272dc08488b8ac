// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <torch/nn/modules/embedding.h>

#include <chrono>
#include <limits>
#include <thread>

#include "parallel/comm_hooks/power_sgd.hpp"
#include "parallel/reducers/bucket_reducer.hpp"
#include "support/counting_collectives.hpp"
#include "training.hpp"

namespace lockstep::parallel {
namespace comm_hooks_test {

/// Counts the elements that are reduced, too.
class CountingElements : public testing::CountingCollectives {
 public:
  using CountingCollectives::CountingCollectives;
  std::size_t elements = 0;

  mpi::Ticket start(const mpi::Job& job) override {
    if (job.call.kind == mpi::CallKind::all_reduce) elements += job.call.count;
    return CountingCollectives::start(job);
  }
};

using MakeHook = std::function<ChosenHook(mpi::Collectives&)>;

// A hook is a function of a bucket that gives a completion; anything else does not compile.
static_assert(!std::is_constructible_v<CommHook, std::function<Completion(int)>>);
static_assert(!std::is_constructible_v<CommHook, std::function<int(const GradBucket&)>>);

/// One parameter, of `rows` x `columns`, whose gradient is the input: the loss is the sum of parameter * input.
class Product : public models::Model {
 public:
  Product(std::int64_t rows, std::int64_t columns, at::ScalarType type = at::kFloat) {
    factor = register_parameter("factor", torch::ones({rows, columns}, type));
  }
  at::Tensor forward(const at::Tensor& input) override { return (factor * input).sum(); }

  at::Tensor factor;
};

/// One parameter of ones(2, 2), to which a number is added.
class Task : public models::Model {
 public:
  Task() { p = register_parameter("p", torch::ones({2, 2})); }
  at::Tensor forward(const at::Tensor& input) override { return (p + input).mean(); }

  at::Tensor p;
};

class CommHooksTest : public TrainingTest {
 protected:
  static MakeHook make(CommHook (*hook)(mpi::Collectives&)) {
    return [hook](mpi::Collectives& all) { return ChosenHook{.hook = hook(all)}; };
  }
  static MakeHook make(const PowerSgdOptions& options) {
    return [options](mpi::Collectives& all) { return power_sgd_hook(all, options); };
  }

  /// The gradients of one parameter in several steps, where each is its rank's input.
  at::Tensor average(const at::Tensor& mine, const MakeHook& hook) {
    auto model = std::make_shared<Product>(mine.size(0), mine.size(1), mine.scalar_type());
    auto wrapper = wrap(model, {.comm_hook = hook});
    wrapper->forward(mine).backward();
    return model->factor.grad().clone();
  }

  /// The gradient that every element of the gradient of Task is in some steps with a hook.
  std::vector<float> task_gradients(const MakeHook& hook, bool is_static) {
    auto model = std::make_shared<Task>();
    auto wrapper = wrap(model, {.reducer = {.has_static_graph = is_static}, .comm_hook = hook});
    std::vector<float> values;
    for (int step = 0; step < 4; ++step) {
      wrapper->parameters().drop_gradients();
      wrapper->forward(torch::full({}, 8.0F + static_cast<float>(rank()))).backward();
      const at::Tensor gradient = model->p.grad().view({-1});
      for (std::int64_t i = 0; i < 4; ++i) values.push_back(gradient[i].item<float>());
    }
    return values;
  }
};

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

// Case 75: error feedback, warm start and the batched form, in all combinations.
TEST_F(CommHooksTest, PowerSgdGivesTheAverageOfWhatHasRankOne) {
  for (int flags = 0; flags < 8; ++flags) {
    const PowerSgdOptions options{.start_step = 2,
                                  .min_compression_rate = 0,  // compresses even 2 x 2
                                  .has_error_feedback = (flags & 1) != 0,
                                  .has_warm_start = (flags & 2) != 0,
                                  .is_batched = (flags & 4) != 0};
    for (const bool is_static : {false, true}) {
      for (const float value : task_gradients(make(options), is_static)) {
        EXPECT_NEAR(value, 0.25F, 1e-6) << "combination " << flags;  // a few roundings of products
      }
    }
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
  auto model = std::make_shared<Task>();
  auto wrapper = wrap(model);
  const auto set = [&](const CommHook& hook) { set_comm_hook(wrapper->reducer(), hook); };
  EXPECT_NE(error_of<ConfigError>([&] { set({}); }).find("is empty"), std::string::npos);
  set(noop_hook());
  EXPECT_NE(error_of<ConfigError>([&] { set(noop_hook()); }).find("is already set"), std::string::npos);

  const auto complaint = [&](const at::Tensor& result) {
    auto other = wrap(std::make_shared<Task>());
    set_comm_hook(other->reducer(), [result](const GradBucket&) -> Completion { return [result] { return result; }; });
    return error_of<ConfigError>([&] { other->forward(torch::ones({})).backward(); });
  };
  EXPECT_EQ(complaint(torch::zeros({3})),
            "ddp: the communication hook returned 3 elements of float for a bucket of 16 of float");
  EXPECT_EQ(complaint(torch::zeros({16}, at::kDouble)),
            "ddp: the communication hook returned 16 elements of double for a bucket of 16 of float");

  auto late = wrap(std::make_shared<Task>());
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

// Case 78.
TEST_F(CommHooksTest, PowerSgdMustNotBeginWhileBucketsChange) {
  for (const std::int64_t start : {0, 1}) {
    for (int flags = 1; flags < 4; ++flags) {
      const PowerSgdOptions options{
          .start_step = start, .has_error_feedback = (flags & 1) != 0, .has_warm_start = (flags & 2) != 0};
      EXPECT_THROW(power_sgd_hook(*collectives_, options), ConfigError) << start << " " << flags;
      EXPECT_THROW(wrap(std::make_shared<TwoLayers>(), {.comm_hook = make(options)}), ConfigError);
    }
    EXPECT_NO_THROW(
        power_sgd_hook(*collectives_, {.start_step = start, .has_error_feedback = false, .has_warm_start = false}));
  }
  EXPECT_THROW(power_sgd_hook(*collectives_, {.rank = 0}), ConfigError);
  EXPECT_THROW(power_sgd_hook(*collectives_, {.min_compression_rate = -1}), ConfigError);
}

// Case 79. Buckets are small once rebuilt, so that the restored wrapper begins with others than the saved one had.
TEST_F(CommHooksTest, PowerSgdContinuesWhereItsStateWasTaken) {
  if (size() == 1) GTEST_SKIP() << "one rank asks no hook";
  for (const bool has_error_feedback : {true, false}) {
    for (const bool has_warm_start : {true, false}) {
      const PowerSgdOptions options{.start_step = 2,
                                    .min_compression_rate = 1,
                                    .has_error_feedback = has_error_feedback,
                                    .has_warm_start = has_warm_start};
      const DdpOptions ddp{.reducer = {.limits = {{8}, 8}}, .comm_hook = make(options)};
      const auto run = [&](DistributedDataParallel& wrapper, int from, int target) {
        std::vector<at::Tensor> gradients;
        for (int step = from; step < target; ++step) {
          wrapper.parameters().drop_gradients();
          backward(wrapper, samples_of(rank(), step, 5, 8, 6));
          for (const at::Tensor& gradient : gradients_of(wrapper.model())) gradients.push_back(gradient);
        }
        return gradients;
      };
      auto first = wrap(std::make_shared<TwoLayers>(8, 7, 6), ddp);
      run(*first, 0, 10);
      const HookState state = first->hook_memory()->state();
      const std::vector<at::Tensor> expected = run(*first, 10, 20);
      EXPECT_EQ(state.integers.at("step"), 10);
      EXPECT_EQ(state.tensors.size(), has_error_feedback ? 2U : 0U);
      EXPECT_EQ(state.common.size(), has_warm_start ? 2U : 0U);

      auto fresh = wrap(std::make_shared<TwoLayers>(8, 7, 6), ddp);
      const std::vector<at::Tensor> others = run(*fresh, 10, 20);
      EXPECT_FALSE(at::equal(others[0], expected[0]));

      auto restored = wrap(std::make_shared<TwoLayers>(8, 7, 6), ddp);
      restored->hook_memory()->load_state(state);
      expect_equal(run(*restored, 10, 20), expected);
    }
  }
}

TEST_F(CommHooksTest, AStateOfAnotherKindIsRefused) {
  const auto memory = power_sgd_hook(*collectives_, {}).memory;
  EXPECT_THROW(memory->load_state({}), CheckpointError);
  EXPECT_THROW(memory->load_state({.tensors = {{"momentum", torch::ones({1})}}, .integers = {{"step", 1}}}),
               CheckpointError);
}

// Everything that all steps gave, and what they still owe, is the sum of the averages.
TEST_F(CommHooksTest, ErrorFeedbackLosesNothing) {
  if (size() == 1) GTEST_SKIP() << "one rank asks no hook";
  for (const bool is_batched : {false, true}) {
    auto model = std::make_shared<TwoLayers>(8, 7, 6);
    auto wrapper = wrap(model, {.comm_hook = make(PowerSgdOptions{.start_step = 2, .is_batched = is_batched})});
    TwoLayers alone(8, 7, 6);
    std::vector<at::Tensor> owed;
    for (const auto& parameter : model->parameters()) owed.push_back(torch::zeros_like(parameter));
    for (int step = 0; step < 8; ++step) {
      wrapper->parameters().drop_gradients();
      backward(*wrapper, samples_of(rank(), step, 5, 8, 6));
      alone.zero_grad();
      for (int r = 0; r < size(); ++r) {
        const batch::Batch batch = samples_of(r, step, 5, 8, 6);
        (models::total_loss(alone.losses(alone.forward(batch.input()), batch.target())) / size()).backward();
      }
      const torch::NoGradGuard no_grad;
      for (std::size_t i = 0; i < owed.size(); ++i) {
        owed[i] += alone.parameters()[i].grad() - model->parameters()[i].grad();
      }
    }
    EXPECT_GT(owed[0].abs().max().item<double>(), 1e-3);  // rank one is not enough
    const HookState state = wrapper->hook_memory()->state();
    for (std::size_t i = 0; i < owed.size(); ++i) {
      at::Tensor error = torch::zeros_like(owed[i]);
      const auto mine = state.tensors.find("error." + std::to_string(i));
      if (mine != state.tensors.end()) error.copy_(mine->second.view(error.sizes()));
      collectives_->all_reduce(error.mutable_data_ptr(), static_cast<std::size_t>(error.numel()), DType::float64,
                               mpi::ReduceOp::average);
      EXPECT_TRUE(at::allclose(error, owed[i].detach(), 1e-10, 1e-12)) << is_batched << " " << i;
    }
  }
}

// The average of W outer products has rank W.
TEST_F(CommHooksTest, PowerSgdOfFullRankGivesTheAverage) {
  if (size() == 1) GTEST_SKIP() << "one rank asks no hook";
  const auto outer = [](int r) {
    return at::outer(at::sin(torch::arange(12, at::kDouble) * (r + 1)),
                     at::cos(torch::arange(9, at::kDouble) * (r + 1)));
  };
  at::Tensor expected = torch::zeros({12, 9}, at::kDouble);
  for (int r = 0; r < size(); ++r) expected += outer(r) / size();
  PowerSgdOptions options{.rank = size(), .start_step = 0, .min_compression_rate = 0};
  options.has_error_feedback = options.has_warm_start = false;
  EXPECT_TRUE(at::allclose(average(outer(rank()), make(options)), expected, 1e-11, 1e-13));
  options.rank = size() - 1;
  EXPECT_FALSE(at::allclose(average(outer(rank()), make(options)), expected, 1e-3, 1e-3));
  // Zeros have no direction, but an average.
  EXPECT_TRUE(at::equal(average(torch::zeros({12, 9}, at::kDouble), make(options)), torch::zeros_like(expected)));
}

TEST_F(CommHooksTest, PowerSgdSendsFewElements) {
  if (size() == 1) GTEST_SKIP() << "one rank sends nothing";
  const auto sent = [&](const PowerSgdOptions& options) {
    CountingElements counting(make_collectives());
    DistributedDataParallel wrapper(std::make_shared<TwoLayers>(32, 16, 2), world_, counting,
                                    {.comm_hook = make(options)});
    for (int step = 0; step < 3; ++step) {
      counting.elements = 0;
      wrapper.parameters().drop_gradients();
      backward(wrapper, samples_of(rank(), step, 2, 32, 2));
    }
    return counting.elements;
  };
  const std::size_t tail = 1 + 4;
  // 32 x 16 is worth it at rank 2: 2 (32 + 16) 2 < 512; 16 x 2 is not, nor are the two biases.
  EXPECT_EQ(sent({.rank = 2, .start_step = 2}), 2 * (32 + 16) + 32 + 16 + 2 + tail);
  // 562 elements fit into 24 x 24.
  EXPECT_EQ(sent({.start_step = 2, .is_batched = true}), 24 + 24 + tail);
  EXPECT_EQ(sent({.start_step = 3}), 512 + 32 + 16 + 8 + tail);  // padded to 64 bytes
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

/// Branches that each rank runs in an order of its own, some of them slowly.
class Branches : public SquaredModel {
 public:
  explicit Branches(int first) : first_(first) {
    torch::manual_seed(1);
    for (int i = 0; i < kCount; ++i) {
      branches_.push_back(register_module("branch" + std::to_string(i), std::make_shared<models::Linear>(6, 6)));
    }
    to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& input) override {
    std::vector<at::Tensor> outputs(kCount);
    for (int i = 0; i < kCount; ++i) {
      const auto branch = static_cast<std::size_t>((first_ + i) % kCount);
      outputs[branch] = models::run(*branches_[branch], input * 1.0);
      if (outputs[branch].requires_grad() && i % 3 == first_ % 3) {
        outputs[branch].register_hook(
            [](const at::Tensor&) { std::this_thread::sleep_for(std::chrono::milliseconds(1)); });
      }
    }
    return at::stack(outputs).sum(0);
  }

 private:
  static constexpr int kCount = 8;
  int first_;
  std::vector<std::shared_ptr<models::Linear>> branches_;
};

// Case 82.
TEST_F(CommHooksTest, TwoCollectivesABucketAndBucketsInAnyOrderDoNotMixUp) {
  for (const char* backend : {"auto", "mpi"}) {
    const auto all = mpi::make_collectives(world_, {.backend = backend, .timeout_s = 60});
    auto model = std::make_shared<Branches>(3 * rank());
    DistributedDataParallel wrapper(
        model, world_, *all,
        {.reducer = {.limits = {{8}, 8}},
         .comm_hook = make(PowerSgdOptions{.rank = 2, .start_step = 2, .min_compression_rate = 1})});
    for (int step = 0; step < 6; ++step) {
      wrapper.parameters().drop_gradients();
      backward(wrapper, samples_of(rank(), step, 3, 6, 6));
      for (const auto& parameter : model->parameters()) EXPECT_TRUE(is_same_everywhere(parameter.grad()));
    }
  }
}

TEST_F(CommHooksTest, SixteenBitsAndPowerSgdWorkTogether) {
  if (size() == 1) GTEST_SKIP() << "one rank asks no hook";
  const MakeHook both = [](mpi::Collectives& all) {
    ChosenHook chosen = power_sgd_hook(all, {.rank = 4, .start_step = 2, .min_compression_rate = 1});
    chosen.hook = compressed_hook(at::kBFloat16, chosen.hook, all);
    return chosen;
  };
  auto model = std::make_shared<TwoLayers>(12, 10, 2);
  auto exact = std::make_shared<TwoLayers>(12, 10, 2);
  auto wrapper = wrap(model, {.comm_hook = both});
  auto other = wrap(exact);
  for (int step = 0; step < 4; ++step) {
    wrapper->parameters().drop_gradients();
    other->parameters().drop_gradients();
    backward(*wrapper, samples_of(rank(), step, 2, 12, 2));
    backward(*other, samples_of(rank(), step, 2, 12, 2));
    const at::Tensor largest = exact->first->weight.grad().abs().max();
    // Two samples a rank make rank 2 each; up to 2 ranks nothing but rounding is lost.
    const double bound = size() == 2 ? 0.02 : 1.0;
    EXPECT_LT((model->first->weight.grad() - exact->first->weight.grad()).abs().max().item<double>(),
              bound * largest.item<double>());
    EXPECT_TRUE(is_same_everywhere(model->first->weight.grad()));
  }
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
