// SPDX-License-Identifier: BSD-3-Clause
// Steps whose ranks are kept alike manually.
#include <lockstep/parallel/synchronization.hpp>

#include <torch/nn/modules/embedding.h>

#include "../mpi/every_backend.hpp"
#include "parallel_test.hpp"
#include "support/counting_collectives.hpp"
#include "support/stand_in_gpu.hpp"

namespace lockstep::parallel {
namespace manual_synchronization_test {

using Types = std::vector<at::ScalarType>;

class ManualTest : public ParallelTest {
 protected:
  /// LibTorch wants modules to be shared.
  template <class M, class... Arguments>
  M& make(Arguments... arguments) {
    auto model = std::make_shared<M>(std::move(arguments)...);
    models_.push_back(model);
    return *model;
  }

 private:
  std::vector<std::shared_ptr<torch::nn::Module>> models_;
};

/// Parameters of one number each, "p0", "p1", ..., whose gradients tests set.
class Numbers : public torch::nn::Module {
 public:
  explicit Numbers(const Types& types) {
    for (std::size_t i = 0; i < types.size(); ++i) {
      numbers.push_back(register_parameter("p" + std::to_string(i), torch::zeros({2}, types[i])));
    }
  }
  void set(std::size_t i, double gradient) {
    numbers[i].mutable_grad() = torch::full({2}, gradient, numbers[i].scalar_type());
  }
  double gradient(std::size_t i) const { return numbers[i].grad()[1].item<double>(); }

  std::vector<at::Tensor> numbers;
};

const Types kTypes = {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf};

// Gradients 1, 3, 5, ... average to the number of ranks, in every type and on every backend.
TEST_F(ManualTest, GradientsAreAveraged) {
  mpi::with_every_backend([&](mpi::Collectives& collectives, const mpi::Communicator& world) {
    Numbers& model = make<Numbers>(kTypes);
    ManualReducer reducer(model, collectives);
    for (int step = 0; step < 3; ++step) {
      for (std::size_t i = 0; i < kTypes.size(); ++i) model.set(i, 2 * world.rank() + 1 + step);
      const at::Tensor before = model.numbers[0].grad();
      reducer.all_reduce();
      EXPECT_TRUE(model.numbers[0].grad().is_same(before));  // changed in place: it may be a view that others hold
      for (std::size_t i = 0; i < kTypes.size(); ++i) EXPECT_EQ(model.gradient(i), world.size() + step) << i;
    }
  });
}

TEST_F(ManualTest, NoneOnAllRanksStaysNoneAndOnSomeCountsAsZero) {
  mpi::with_every_backend([&](mpi::Collectives& collectives, const mpi::Communicator& world) {
    for (std::size_t last = 0; last < kTypes.size(); ++last) {  // the type of the bucket that is reduced last
      Numbers& model = make<Numbers>(Types{kTypes[last], kTypes[last], kTypes[last]});
      const bool is_last = world.rank() + 1 == world.size();
      if (is_last) model.set(1, world.size());
      model.set(2, 2);
      manual_gradient_all_reduce(model, collectives);
      EXPECT_FALSE(model.numbers[0].grad().defined());
      EXPECT_EQ(model.gradient(1), 1);
      EXPECT_EQ(model.gradient(2), 2);
    }
  });
}

// Each rank lacks another one: messages of one gradient each would not fit together.
TEST_F(ManualTest, RanksMayLackDifferentGradients) {
  Numbers& model = make<Numbers>(Types(static_cast<std::size_t>(size()) + 1, at::kDouble));
  const auto own = static_cast<std::size_t>(rank());
  for (std::size_t i = 0; i < model.numbers.size(); ++i) {
    if (i != own) model.set(i, size());
  }
  manual_gradient_all_reduce(model, *collectives_);
  for (std::size_t i = 0; i + 1 < model.numbers.size(); ++i) {
    if (size() == 1) {
      EXPECT_FALSE(model.numbers[i].grad().defined());
    } else {
      EXPECT_EQ(model.gradient(i), size() - 1);
    }
  }
  EXPECT_EQ(model.gradient(model.numbers.size() - 1), size());
}

TEST_F(ManualTest, FewMessagesCarryManyGradients) {
  testing::CountingCollectives counting(make_collectives());
  Numbers& model = make<Numbers>(Types(100, at::kFloat));
  ManualReducer reducer(model, counting);
  counting.take_counts();
  for (std::size_t i = 0; i < 100; ++i) model.set(i, rank());
  reducer.all_reduce();
  const auto counts = counting.take_counts();
  EXPECT_EQ(counts.all_reduces, size() == 1 ? 0 : 1);
  EXPECT_EQ(counts.all(), 2 * counts.all_reduces);  // it is waited for, and that is all
  ManualReducer small(model, counting, {.bucket_bytes = {640}, .last_bucket_bytes = 0});
  small.all_reduce();
  EXPECT_GT(counting.take_counts().all_reduces, size() == 1 ? -1 : 1);
  EXPECT_EQ(model.gradient(99), (size() - 1) / 2.0);
}

// The average is over the ranks of the collectives, not over all there are.
TEST_F(ManualTest, AGroupAveragesForItself) {
  const int color = rank() % 2;
  const auto group = collectives_->split(color);
  Numbers& model = make<Numbers>(Types{at::kDouble});
  model.set(0, rank());
  manual_gradient_all_reduce(model, *group);
  double sum = 0;
  int members = 0;
  for (int r = color; r < size(); r += 2, ++members) sum += r;
  EXPECT_EQ(model.gradient(0), sum * (1.0 / members));
}

// Sums of 16 bits would overflow: 40000 is close to the largest number of that type.
TEST_F(ManualTest, ScaledGradientsOfSixteenBitsDoNotOverflow) {
  Numbers& model = make<Numbers>(Types{at::kHalf});
  model.set(0, 40000);
  manual_gradient_all_reduce(model, *collectives_);
  EXPECT_EQ(model.gradient(0), 40000);
}

TEST_F(ManualTest, SparseGradientsStaySparse) {
  class Table : public torch::nn::Module {
   public:
    Table() {
      table = register_module("table", torch::nn::Embedding(torch::nn::EmbeddingOptions(8, 2).sparse(true)));
      unused = register_module("unused", torch::nn::Embedding(torch::nn::EmbeddingOptions(8, 2).sparse(true)));
      scale = register_parameter("scale", torch::ones({2}));
    }
    torch::nn::Embedding table{nullptr};
    torch::nn::Embedding unused{nullptr};
    at::Tensor scale;
  };
  Table& model = make<Table>();
  const bool has_none = size() > 1 && is_last();
  if (!has_none) {
    (model.table->forward(torch::tensor({rank(), 6})) * model.scale.detach() * static_cast<double>(size()))
        .sum()
        .backward();
  }
  if (rank() == 0 && size() > 1) {  // its state may be left so by a user's hook
    model.table->weight.mutable_grad() = model.table->weight.grad().to_dense();
  }
  manual_gradient_all_reduce(model, *collectives_);
  EXPECT_TRUE(model.table->weight.grad().is_sparse());
  EXPECT_FALSE(model.unused->weight.grad().defined());
  EXPECT_FALSE(model.scale.grad().defined());
  const at::Tensor gradient = model.table->weight.grad().to_dense();
  const int with = size() == 1 ? 1 : size() - 1;
  for (int row = 0; row < 8; ++row) {
    EXPECT_FLOAT_EQ(gradient[row][0].item<float>(), static_cast<float>(row == 6 ? with : (row < with ? 1 : 0))) << row;
  }
}

const std::vector<std::int64_t> kWidths = {3, 4, 2};

// The gradients that the wrapper's reducer would have given, and then what an optimizer makes of it.
TEST_F(ManualTest, AWrappersGradientsAreThoseOfItsReducer) {
  auto model = std::make_shared<Layers>(kWidths);
  const auto wrapper = wrap(model);
  Layers alone(kWidths);
  ManualReducer reducer(*model, *collectives_);
  for (int step = 0; step < 3; ++step) {
    const auto loss = [&](int r) { return loss_of(alone, batch_of(r, step, kWidths)); };
    const std::vector<at::Tensor> expected = average_gradients(alone, size(), loss);
    wrapper->parameters().drop_gradients();
    const at::Tensor mine = [&] {
      const auto only_here = wrapper->no_sync();
      const batch::Batch batch = batch_of(rank(), step, kWidths);
      return models::total_loss(model->losses(wrapper->forward(batch.input()), batch.target()));
    }();
    mine.backward();
    reducer.all_reduce();
    expect_gradients(*model, expected, 1e-12);
  }
}

// A layer that this rank does not use has its gradient from the others, and is updated here, too.
TEST_F(ManualTest, AWrappersUnusedLayerIsUpdatedEverywhere) {
  if (size() == 1) GTEST_SKIP() << "needs several ranks";
  auto model = std::make_shared<Layers>(std::vector<std::int64_t>{3, 3, 3});
  const auto wrapper = wrap(model);
  optim::OptimWrapper optimizer = make_optimizer(wrapper->parameters(), {{"name", "sgd"}, {"lr", "0.5"}});
  const at::Tensor before = model->layers[1]->weight.detach().clone();
  {
    const auto only_here = wrapper->no_sync();
    const at::Tensor first = wrapper->run([&] { return model->run(0, eighths({2, 3}, rank())); });
    (is_last() ? first : model->run(1, first)).sum().backward();
  }
  manual_gradient_all_reduce(*model, *collectives_);
  optimizer.update_params(torch::zeros({}, at::kDouble).requires_grad_());  // the gradients are there already
  EXPECT_FALSE(at::equal(model->layers[1]->weight, before));
  for (const at::Tensor& parameter : model->parameters()) EXPECT_TRUE(is_same_everywhere(parameter));
}

TEST_F(ManualTest, DeviceGradientsAreAveraged) {
  testing::reset_stand_in();
  const auto nccl = mpi::make_collectives(world_, {.backend = "nccl", .timeout_s = 60, .gpu = testing::stand_in_gpu()});
  Numbers& model = make<Numbers>(Types{at::kFloat, at::kDouble, at::kFloat});
  for (std::size_t i = 0; i < 2; ++i) model.set(i, 2 * rank() + 1);
  manual_gradient_all_reduce(model, *nccl);
  EXPECT_EQ(model.gradient(0), size());
  EXPECT_EQ(model.gradient(1), size());
  EXPECT_FALSE(model.numbers[2].grad().defined());
}

/// A trained and a frozen parameter, and two buffers, all different on every rank.
class Stateful : public torch::nn::Module {
 public:
  explicit Stateful(int rank) {
    trained = register_parameter("trained", torch::full({3}, rank + 0.5));
    frozen = register_parameter("frozen", torch::full({3}, rank + 0.25), /*requires_grad=*/false);
    level = register_buffer("level", torch::full({2, 3}, rank + 0.125).t());  // not row-major
    count = register_buffer("count", torch::full({}, rank, at::kLong));
  }
  at::Tensor trained;
  at::Tensor frozen;
  at::Tensor level;
  at::Tensor count;
};

TEST_F(ManualTest, BuffersAndOnRequestParametersAreTheRoots) {
  mpi::with_every_backend([&](mpi::Collectives& collectives, const mpi::Communicator& world) {
    const int root = world.size() - 1;
    for (const bool has_parameters : {false, true}) {
      Stateful& model = make<Stateful>(world.rank());
      manual_sync_parameters(model, collectives, {.root = root, .parameters = has_parameters});
      const int source = has_parameters ? root : world.rank();
      EXPECT_EQ(model.trained[0].item<double>(), source + 0.5);
      EXPECT_EQ(model.frozen[2].item<double>(), source + 0.25);
      EXPECT_TRUE(at::equal(model.level, torch::full({3, 2}, root + 0.125)));
      EXPECT_EQ(model.count.item<std::int64_t>(), root);
    }
  });
}

TEST_F(ManualTest, WhatIsIgnoredStays) {
  Stateful& model = make<Stateful>(rank());
  manual_sync_parameters(model, *collectives_, {.parameters = true, .ignored = {"frozen", "count"}});
  EXPECT_EQ(model.trained[0].item<double>(), 0.5);
  EXPECT_EQ(model.frozen[0].item<double>(), rank() + 0.25);
  EXPECT_EQ(model.count.item<std::int64_t>(), rank());
}

TEST_F(ManualTest, AWrappersParametersAndBuffersAreTheRoots) {
  const int root = size() - 1;
  for (const bool shares : {false, true}) {
    auto model = std::make_shared<Layers>(kWidths);
    const at::Tensor level = model->register_buffer("level", torch::zeros({2}, at::kDouble));
    const at::Tensor own = model->register_buffer("own", torch::zeros({2}, at::kDouble));
    const auto wrapper = wrap(model, {.shares_parameters = shares, .ignored = {"own"}});
    level.fill_(rank());
    own.fill_(rank());
    const at::Tensor weight = model->parameters()[0];
    if (!shares) {
      const torch::NoGradGuard no_grad;
      weight.fill_(rank());
    }
    manual_sync_parameters(*wrapper, {.root = root});
    EXPECT_EQ(level[0].item<double>(), root);
    EXPECT_EQ(own[0].item<double>(), rank());
    EXPECT_EQ(shares ? rank() : weight[0][0].item<double>(), rank());
    manual_sync_parameters(*wrapper, {.root = root, .parameters = true});
    EXPECT_EQ(shares ? root : weight[0][0].item<double>(), root);
    EXPECT_TRUE(is_same_everywhere(weight));
    EXPECT_EQ(own[0].item<double>(), rank());
  }
}

TEST_F(ManualTest, ARootThatIsNoRankIsRefused) {
  Stateful& model = make<Stateful>(rank());
  for (const int root : {-1, size()}) {
    EXPECT_EQ(refusal([&] { manual_sync_parameters(model, *collectives_, {.root = root}); }),
              "manual synchronization: the root " + std::to_string(root) + " is not one of " + std::to_string(size()) +
                  " ranks");
  }
}

TEST_F(ManualTest, AModelWithNothingToTrainIsRefused) {
  Stateful& model = make<Stateful>(rank());
  model.trained.set_requires_grad(false);
  EXPECT_TRUE(contains(refusal([&] { manual_gradient_all_reduce(model, *collectives_); }), "nothing to train"));
}

}  // namespace manual_synchronization_test
}  // namespace lockstep::parallel
