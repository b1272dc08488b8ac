// SPDX-License-Identifier: BSD-3-Clause
// Buffers between ranks, and what each rank keeps to itself.
#include "parallel_test.hpp"

namespace lockstep::parallel {
namespace {

using BuffersTest = ParallelTest;
using IgnoredTest = ParallelTest;

/// A layer and two buffers; `replace` gives them other memory.
class Buffered : public Layers {
 public:
  Buffered() : Layers({3, 2}) {
    level_ = register_buffer("level", torch::zeros({2}, at::kDouble));
    count_ = register_buffer("count", torch::zeros({}, at::kLong));
  }
  void replace(double level, std::int64_t count) {
    level_.set_data(torch::full({2}, level, at::kDouble));
    count_.set_data(torch::full({}, count, at::kLong));
  }
  double level() const { return level_[0].item<double>(); }
  std::int64_t count() const { return count_.item<std::int64_t>(); }

 private:
  at::Tensor level_;
  at::Tensor count_;
};

// Case 83: the memory of a buffer may be another one than at the forward before.
TEST_F(BuffersTest, AreSynchronisedBeforeEveryForwardAsTheyAreThen) {
  const double average = (size() - 1) / 2.0;
  for (const BufferMode mode : {BufferMode::off, BufferMode::broadcast, BufferMode::average}) {
    auto model = std::make_shared<Buffered>();
    const auto wrapper = wrap(model, {.buffers = mode});
    for (int step = 0; step < 3; ++step) {
      model->replace(step + rank(), 10 * step + rank());
      const at::Tensor output = wrapper->forward(torch::ones({1, 3}, at::kDouble));
      const bool is_off = mode == BufferMode::off;
      const double of_ranks = mode == BufferMode::broadcast ? 0 : (is_off ? rank() : average);
      EXPECT_EQ(model->level(), step + of_ranks);
      EXPECT_EQ(model->count(), 10 * step + (is_off ? rank() : 0));  // whole numbers are rank 0's
      output.sum().backward();
    }
    {
      const auto only_here = wrapper->no_sync();
      model->replace(rank(), rank());
      wrapper->forward(torch::ones({1, 3}, at::kDouble)).sum().backward();
      EXPECT_EQ(model->level(), rank());
    }
    wrapper->synchronise_buffers();
    EXPECT_EQ(model->level(), average);
    EXPECT_EQ(model->count(), 0);
  }
}

// Case 89: whether or not steps have been trained before.
TEST_F(BuffersTest, OneRankMayEvaluateAlone) {
  for (const BufferMode mode : {BufferMode::off, BufferMode::broadcast, BufferMode::average}) {
    auto model = std::make_shared<Layers>(std::vector<std::int64_t>{3, 4});
    const auto norm = std::make_shared<models::BatchNorm>(4);
    model->register_module("norm", norm);
    model->to(at::kDouble);
    const auto wrapper = wrap(model, {.buffers = mode});
    const auto forward = [&] { return models::run(*norm, model->forward(batch_of(rank(), 0, {3, 4}).input)); };
    for (int round = 0; round < 2; ++round) {
      model->eval();
      if (is_last()) {
        const torch::NoGradGuard no_grad;
        for (int i = 0; i < 6; ++i) wrapper->run(forward);
      }
      model->train();
      drop_gradients(*model);
      wrapper->run(forward).square().sum().backward();
      EXPECT_TRUE(is_same_everywhere(model->layers[0]->weight.grad()));
    }
  }
}

// Case 85: the ignored layer is replaced by one that each rank has for itself, even in another size.
TEST_F(IgnoredTest, ParametersAndBuffersBelongToTheirRank) {
  for (const ReducerOptions& options :
       {ReducerOptions{}, ReducerOptions{.finds_unused = true}, ReducerOptions{.has_static_graph = true}}) {
    auto model = std::make_shared<Layers>(std::vector<std::int64_t>{3, 4});
    auto own = model->register_module("own", std::make_shared<Linear>(4, 1 + rank()));
    model->register_buffer("mark", torch::full({1 + rank()}, rank()));
    const DdpOptions ddp = {
        .reducer = options, .buffers = BufferMode::broadcast, .ignored = {"own.weight", "own.bias", "mark"}};
    const auto wrapper = wrap(model, ddp);
    EXPECT_EQ(wrapper->parameters().size(), 2U);
    own = std::make_shared<Linear>(4, 2);
    own->to(at::kDouble);
    const torch::NoGradGuard no_grad;
    for (auto& parameter : own->parameters()) parameter.copy_(eighths(parameter.sizes(), rank() + 1));
    model->replace_module("own", own);

    // What all ranks' own layers are, on every rank.
    Layers alone({3, 4});
    std::vector<std::shared_ptr<Linear>> others;
    for (int r = 0; r < size(); ++r) {
      others.push_back(std::make_shared<Linear>(4, 2));
      others.back()->to(at::kDouble);
      for (auto& parameter : others.back()->parameters()) parameter.copy_(eighths(parameter.sizes(), r + 1));
    }
    const auto loss = [](Layers& of, Linear& last, int r, int step) {
      const data::Batch batch = batch_of(r, step, {3, 2});
      return (models::run(last, at::tanh(of.forward(batch.input))) - batch.target).square().mean();
    };
    const torch::AutoGradMode grad(true);
    for (int step = 0; step < 6; ++step) {
      drop_gradients(*model);
      wrapper->run([&] { return loss(*model, *own, rank(), step); }).backward();
      for (const auto& other : others) other->zero_grad();
      const auto expected = average_gradients(
          alone, size(), [&](int r) { return loss(alone, *others[static_cast<std::size_t>(r)], r, step); });
      expect_equal({model->layers[0]->weight.grad(), model->layers[0]->bias.grad()}, expected);
      const Linear& mine = *others[static_cast<std::size_t>(rank())];
      expect_equal({own->weight.grad(), own->bias.grad()}, {mine.weight.grad(), mine.bias.grad()});
    }
    EXPECT_TRUE(at::equal(model->named_buffers()["mark"], torch::full({1 + rank()}, rank())));
  }
}

}  // namespace
}  // namespace lockstep::parallel
