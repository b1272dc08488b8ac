// SPDX-License-Identifier: BSD-3-Clause
// Buffers between ranks, and what each rank keeps to itself.
#include "parallel/store/parameter_store.hpp"
#include "parallel_test.hpp"

namespace lockstep::parallel {
namespace buffers_test {

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
TEST_F(BuffersTest, AreSynchronizedBeforeEveryForwardAsTheyAreThen) {
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
      EXPECT_EQ(model->count(), 10 * step + (is_off ? rank() : 0));  // integers are rank 0's
      output.sum().backward();
    }
    {
      const auto only_here = wrapper->no_sync();
      model->replace(rank(), rank());
      wrapper->forward(torch::ones({1, 3}, at::kDouble)).sum().backward();
      EXPECT_EQ(model->level(), rank());
    }
    wrapper->synchronize_buffers();
    EXPECT_EQ(model->level(), average);
    EXPECT_EQ(model->count(), 0);
  }
}

// Also on three ranks, where a third of the sum of three equal numbers of 32 bits can be another number.
TEST_F(BuffersTest, ThatAreEqualKeepTheirBits) {
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    torch::manual_seed(1);
    auto model = std::make_shared<Layers>(std::vector<std::int64_t>{3, 2});
    const at::Tensor values = torch::randn({1000}).to(type);
    const at::Tensor buffer = model->register_buffer("values", values.clone());
    wrap(model, {.buffers = BufferMode::off})->synchronize_buffers();
    EXPECT_TRUE(at::equal(buffer, values)) << type;
  }
}

/// The place where buffers are averaged in a step.
enum class Place { before_forward, after_forward, during_backward };

// Case 84: what the wrapper does is a reduction at that place, and a caller's own may be under way during backward.
TEST_F(BuffersTest, AreAveragedAsByAReductionAtTheSamePlace) {
  const auto train = [&](Place place, bool is_by_hand) {
    auto model = std::make_shared<Layers>(std::vector<std::int64_t>{3, 4});
    const auto norm = model->register_module("norm", std::make_shared<models::BatchNorm>(4));
    model->to(at::kDouble);
    const bool is_before = place == Place::before_forward;
    const auto wrapper = wrap(model, {.buffers = is_before && !is_by_hand ? BufferMode::average : BufferMode::off});
    const std::vector<at::Tensor> statistics = {norm->running_mean, norm->running_var};
    std::vector<mpi::Ticket> tickets;
    const auto start = [&] {
      for (const at::Tensor& buffer : statistics) {
        tickets.push_back(
            collectives_->start_all_reduce(buffer.mutable_data_ptr(), 4, DType::float64, mpi::ReduceOp::average));
      }
    };
    const auto complete = [&] {
      for (const mpi::Ticket ticket : tickets) collectives_->wait(ticket);
      tickets.clear();
    };
    std::vector<at::Tensor> traces;
    for (int step = 0; step < 3; ++step) {
      drop_gradients(*model);
      if (is_before && is_by_hand) start();
      complete();
      const at::Tensor output = wrapper->run([&] {
        return models::run(*norm, model->forward(batch_of(rank(), step, {3, 4}, 5).input()));
      });
      if (!is_before && is_by_hand) start();
      if (!is_before && !is_by_hand) wrapper->synchronize_buffers();
      if (place == Place::after_forward) complete();
      output.square().square().sum().backward();
      complete();
      for (const at::Tensor& buffer : statistics) traces.push_back(buffer.clone());
      for (const at::Tensor& gradient : gradients_of(*model)) traces.push_back(gradient);
    }
    return traces;
  };
  const std::vector<at::Tensor> before = train(Place::before_forward, false);
  const std::vector<at::Tensor> after = train(Place::after_forward, false);
  expect_equal(train(Place::before_forward, true), before);
  expect_equal(train(Place::after_forward, true), after);
  expect_equal(train(Place::during_backward, true), after);
  EXPECT_TRUE(is_same_everywhere(after[0]));
  EXPECT_EQ(is_same_everywhere(before[0]), size() == 1);
}

// Case 89: whether or not steps have been trained before.
TEST_F(BuffersTest, OneRankMayEvaluateAlone) {
  for (const BufferMode mode : {BufferMode::off, BufferMode::broadcast, BufferMode::average}) {
    auto model = std::make_shared<Layers>(std::vector<std::int64_t>{3, 4});
    const auto norm = std::make_shared<models::BatchNorm>(4);
    model->register_module("norm", norm);
    model->to(at::kDouble);
    const auto wrapper = wrap(model, {.buffers = mode});
    const auto forward = [&] { return models::run(*norm, model->forward(batch_of(rank(), 0, {3, 4}).input())); };
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
    EXPECT_EQ(wrapper->store().size(), 2U);
    own = std::make_shared<Linear>(4, 2);
    own->to(at::kDouble);
    const torch::NoGradGuard no_grad;
    for (auto& parameter : own->parameters()) parameter.copy_(eighths(parameter.sizes(), rank() + 1));
    model->replace_module("own", own);

    // The values that all ranks' own layers are, on every rank.
    Layers alone({3, 4});
    std::vector<std::shared_ptr<Linear>> others;
    for (int r = 0; r < size(); ++r) {
      others.push_back(std::make_shared<Linear>(4, 2));
      others.back()->to(at::kDouble);
      for (auto& parameter : others.back()->parameters()) parameter.copy_(eighths(parameter.sizes(), r + 1));
    }
    const auto loss = [](Layers& layers, Linear& last, int r, int step) {
      const batch::Batch batch = batch_of(r, step, {3, 2});
      return (models::run(last, at::tanh(layers.forward(batch.input()))) - batch.target()).square().mean();
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

}  // namespace buffers_test
}  // namespace lockstep::parallel
