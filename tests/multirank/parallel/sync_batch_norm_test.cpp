// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/models/layers.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>
#include <lockstep/parallel/synchronization.hpp>

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "mpi/process/topology.hpp"
#include "support/counting_collectives.hpp"

namespace lockstep::parallel {
namespace sync_batch_norm_test {

using testing::CountingCollectives;

using models::BatchNorm;
using models::BatchNormOptions;

class OneLayer : public models::Model {
 public:
  OneLayer(std::int64_t channels, const BatchNormOptions& options, at::ScalarType dtype) {
    layer = register_module("norm", std::make_shared<BatchNorm>(channels, options));
    to(dtype);
    name_blocks();
    if (!options.is_affine) return;
    const torch::NoGradGuard no_grad;
    layer->weight.copy_(torch::linspace(0.5, 1.5, channels));
    layer->bias.copy_(torch::linspace(-1, 1, channels));
  }
  at::Tensor forward(const at::Tensor& input) override { return models::run(*layer, input); }

  std::shared_ptr<BatchNorm> layer;
};

std::vector<std::int64_t> with_samples(std::int64_t samples, std::vector<std::int64_t> rest) {
  rest.insert(rest.begin(), samples);
  return rest;
}

std::vector<std::int64_t> sizes_of(const std::vector<at::Tensor>& batches) {
  std::vector<std::int64_t> sizes;
  for (const at::Tensor& batch : batches) sizes.push_back(batch.size(0));
  return sizes;
}

class SyncBatchNormTest : public ::testing::Test {
 protected:
  SyncBatchNormTest() : collectives_(mpi::make_collectives(world_, {.backend = "auto", .timeout_s = 60})) {}

  int rank() const { return world_.rank(); }
  int size() const { return world_.size(); }

  std::shared_ptr<OneLayer> synchronized(std::int64_t channels, const BatchNormOptions& options = {},
                                         at::ScalarType dtype = at::kDouble) {
    auto model = std::make_shared<OneLayer>(channels, options, dtype);
    EXPECT_EQ(convert_to_sync_batch_norm(*model, *collectives_), 1U);
    return model;
  }

  /// Compares with one process that has the batches of all ranks that share statistics.
  void expect_as_one_process(OneLayer& model, const std::vector<at::Tensor>& batches, const BatchNormOptions& options,
                             bool needs_gradient = true) {
    const std::int64_t channels = model.layer->running_mean.numel();
    OneLayer whole(channels, options, batches[0].scalar_type());
    std::vector<at::Tensor> inputs;
    at::Tensor mine;
    at::Tensor output;
    for (int step = 0; step < 2; ++step) {
      inputs.clear();
      for (const at::Tensor& batch : batches) inputs.push_back((batch + step).requires_grad_(needs_gradient));
      mine = (batches[index_] + step).requires_grad_(needs_gradient);
      const at::Tensor expected = whole.forward(at::cat(inputs));
      output = model.forward(mine);
      const at::Tensor expected_part = expected.split_with_sizes(sizes_of(batches))[index_];
      EXPECT_TRUE(at::allclose(output, expected_part, 1e-9, 1e-11));
      if (needs_gradient || options.is_affine) {
        // Weighs elements differently, or the gradients would vanish.
        (expected * expected.detach().cos()).sum().backward();
        (output * output.detach().cos()).sum().backward();
      }
    }
    if (needs_gradient) {
      EXPECT_TRUE(at::allclose(mine.grad(), inputs[index_].grad(), 1e-8, 1e-10));
    }
    EXPECT_TRUE(at::allclose(model.layer->running_mean, whole.layer->running_mean, 1e-9, 1e-11));
    EXPECT_TRUE(at::allclose(model.layer->running_var, whole.layer->running_var, 1e-9, 1e-11));
    EXPECT_EQ(model.layer->num_batches_tracked.item<std::int64_t>(), 2);
    if (options.is_affine) {  // the sum of the ranks' own gradients
      EXPECT_TRUE(at::allclose(summed(model.layer->weight.grad()), whole.layer->weight.grad(), 1e-8, 1e-10));
      EXPECT_TRUE(at::allclose(summed(model.layer->bias.grad()), whole.layer->bias.grad(), 1e-8, 1e-10));
    }
  }

  at::Tensor summed(const at::Tensor& tensor) const {
    const at::Tensor sum = tensor.clone();
    group_->all_reduce(sum.mutable_data_ptr(), static_cast<std::size_t>(sum.numel()), DType::float64,
                       mpi::ReduceOp::sum);
    return sum;
  }

  /// A batch for every rank, the same on all ranks.
  template <class SamplesOf>
  std::vector<at::Tensor> batches(const std::vector<std::int64_t>& rest, const SamplesOf& samples_of) const {
    torch::manual_seed(7);
    std::vector<at::Tensor> result;
    for (int r = 0; r < size(); ++r) {
      result.push_back(torch::randn(with_samples(samples_of(r), rest), at::kDouble) * (r + 1) + r);
    }
    return result;
  }

  mpi::Communicator world_ = mpi::Communicator::world();
  std::unique_ptr<mpi::Collectives> collectives_;
  mpi::Collectives* group_ = collectives_.get();          // the ranks that share statistics
  std::size_t index_ = static_cast<std::size_t>(rank());  // among them
};

// Case 86.
TEST_F(SyncBatchNormTest, BatchesOfAnySizeAndShapeGiveWhatOneProcessGets) {
  const auto unequal = [](int r) { return r + 2; };
  for (const std::vector<std::int64_t>& rest : std::vector<std::vector<std::int64_t>>{{3}, {3, 5}, {3, 4, 2}}) {
    expect_as_one_process(*synchronized(3), batches(rest, unequal), {});
  }
}

// Case 86.
TEST_F(SyncBatchNormTest, CumulativeStatisticsAndNoScale) {
  const BatchNormOptions options{.eps = 1e-3, .momentum = std::nullopt, .is_affine = false};
  expect_as_one_process(*synchronized(3, options), batches({3, 5}, [](int r) { return r + 2; }), options);
}

// Case 86.
TEST_F(SyncBatchNormTest, OneValuePerChannelAndRankIsEnough) {
  const auto one = [](int) { return 1; };
  const auto model = synchronized(3);
  if (size() == 1) {
    EXPECT_THROW(model->layer->forward(torch::zeros({1, 3}, at::kDouble)), ConfigError);
  } else {
    expect_as_one_process(*model, batches({3}, one), {});
    EXPECT_THROW(model->forward(torch::zeros({rank() == 0 ? 1 : 0, 3}, at::kDouble)), ConfigError);
  }
}

// Case 86.
TEST_F(SyncBatchNormTest, RunningStatisticsAreThoseOfAllData) {
  const auto model = synchronized(2, {.momentum = 0.99});
  std::vector<at::Tensor> all;
  at::Tensor mine;
  for (int k = 0; k < size(); ++k) {
    const auto length = static_cast<std::int64_t>(std::pow(10, k + 1));
    const at::Tensor values = torch::tensor({std::pow(0.1, k - 1), std::pow(0.3, k - 1)}, at::kDouble);
    const at::Tensor input = values.view({1, 2, 1}).expand({2, 2, length}).contiguous();
    all.push_back(input.transpose(0, 1).flatten(1));
    if (k == rank()) mine = input;
  }
  for (int step = 0; step < 100; ++step) model->forward(mine).mean().backward();
  const at::Tensor data = at::cat(all, 1);
  EXPECT_TRUE(at::allclose(model->layer->running_mean, data.mean(1), 1e-9));
  EXPECT_TRUE(at::allclose(model->layer->running_var, data.var(1, /*unbiased=*/true), 1e-9, 1e-12));
}

// Case 86.
TEST_F(SyncBatchNormTest, ChannelsLastStaysChannelsLast) {
  const auto model = synchronized(3);
  std::vector<at::Tensor> inputs = batches({3, 4, 2}, [](int r) { return r + 2; });
  for (at::Tensor& input : inputs) input = input.contiguous(at::MemoryFormat::ChannelsLast);
  expect_as_one_process(*model, inputs, {});
  const at::Tensor input = inputs[index_].clone().requires_grad_();
  const at::Tensor output = model->forward(input);
  EXPECT_TRUE(output.is_contiguous(at::MemoryFormat::ChannelsLast));
  output.square().sum().backward();
  EXPECT_TRUE(input.grad().is_contiguous(at::MemoryFormat::ChannelsLast));
}

// Case 86.
TEST_F(SyncBatchNormTest, ASubGroupSharesStatistics) {
  const auto group = collectives_->split(rank() % 2);
  group_ = group.get();
  index_ = static_cast<std::size_t>(rank() / 2);
  const auto model = std::make_shared<OneLayer>(3, BatchNormOptions{}, at::kDouble);
  convert_to_sync_batch_norm(*model, *group);
  std::vector<at::Tensor> members;
  const std::vector<at::Tensor> all = batches({3, 5}, [](int r) { return r + 2; });
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (static_cast<int>(r) % 2 == rank() % 2) members.push_back(all[r]);
  }
  expect_as_one_process(*model, members, {});
}

// Every rank has the values rank - 1 and rank + 1: a group has the mean of its ranks.
TEST_F(SyncBatchNormTest, AKeySetsTheRanksThatShareStatistics) {
  const mpi::Topology two_hosts = mpi::Topology::of(world_, std::min(2, size()));
  for (const int ranks : {0, 1, 2, 3, -1}) {
    Section ddp("ddp");
    for (const KeySpec& key : ddp_keys()) ddp.declare(key);
    ddp.set("sync_batch_norm", "true", "test");
    ddp.set("sync_batch_norm_ranks", std::to_string(ranks), "test");
    DdpOptions options = DdpOptions::from(ddp, *collectives_);
    options.hosts = std::min(2, size());
    const auto model = std::make_shared<OneLayer>(1, BatchNormOptions{.momentum = 1}, at::kDouble);
    DistributedDataParallel wrapper(model, world_, *collectives_, options);
    wrapper.forward(torch::tensor({rank() - 1.0, rank() + 1.0}, at::kDouble).view({2, 1})).sum().backward();
    double sum = 0;
    int members = 0;
    for (int r = 0; r < size(); ++r) {
      const bool is_of_host = two_hosts.host_of_rank[static_cast<std::size_t>(r)] == two_hosts.host_index;
      const bool is_member = ranks > 0 ? r / ranks == rank() / ranks : ranks == 0 || is_of_host;
      if (!is_member) continue;
      sum += r;
      ++members;
    }
    EXPECT_DOUBLE_EQ(model->layer->running_mean.item<double>(), sum / members) << ranks;
  }
}

// Case 87.
TEST_F(SyncBatchNormTest, RanksMayHaveNothing) {
  if (size() == 1) return;  // the layer is the ordinary one
  for (const bool needs_gradient : {true, false}) {
    expect_as_one_process(*synchronized(3), batches({3, 4, 2}, [](int r) { return r == 0 ? 0 : r + 1; }), {},
                          needs_gradient);
    const auto model = synchronized(3);
    const at::Tensor nothing = torch::zeros({0, 3, 4, 2}, at::kDouble).requires_grad_(needs_gradient);
    const at::Tensor output = model->forward(nothing);
    EXPECT_EQ(output.sizes(), nothing.sizes());
    output.sum().backward();
    EXPECT_EQ(model->layer->weight.grad().abs().sum().item<double>(), 0.0);
    EXPECT_EQ(model->layer->running_mean.abs().sum().item<double>(), 0.0);
    EXPECT_TRUE(at::equal(model->layer->running_var, torch::ones({3}, at::kDouble)));
    EXPECT_EQ(nothing.grad().defined(), needs_gradient);
  }
}

// Case 88.
TEST_F(SyncBatchNormTest, EvaluationDoesNotCommunicate) {
  const auto model = synchronized(3);
  if (rank() == 0) {
    model->eval();
    const at::Tensor input = torch::ones({1, 3}, at::kDouble);
    const at::Tensor expected =
        at::batch_norm(input, model->layer->weight, model->layer->bias, model->layer->running_mean,
                       model->layer->running_var, false, 0, 1e-5, false);
    for (int i = 0; i < 6; ++i) EXPECT_TRUE(at::equal(model->forward(input), expected));
    model->train();
  }
  // A gather that only rank 0 had started would meet those of the others here.
  expect_as_one_process(*model, batches({3, 5}, [](int r) { return r + 2; }), {});
}

// Case 88.
TEST_F(SyncBatchNormTest, AForwardIsOneGatherAndABackwardOneReduction) {
  CountingCollectives counted(mpi::make_collectives(world_, {.backend = "auto", .timeout_s = 60}));
  OneLayer model(3, {}, at::kDouble);
  EXPECT_EQ(convert_to_sync_batch_norm(model, counted), 1U);
  const bool is_split = size() > 1;  // layers have collectives of their own, and one rank has none
  EXPECT_EQ(counted.take_counts().others, is_split ? 1 : 0);
  if (!is_split) return;
  CountingCollectives& own = counted.split_number(0);
  const at::Tensor input = batches({3, 5}, [](int r) { return r + 2; })[index_];
  for (int step = 0; step < 3; ++step) {
    const at::Tensor leaf = input.clone().requires_grad_();
    const at::Tensor output = model.forward(leaf);
    const CountingCollectives::Counts forward = own.take_counts();
    EXPECT_EQ(forward.gathers, 1);
    EXPECT_EQ(forward.all(), 1);
    output.pow(3).sum().backward();
    const CountingCollectives::Counts backward = own.take_counts();
    EXPECT_EQ(backward.all_reduces, 1);
    EXPECT_EQ(backward.waits, 1);
    EXPECT_EQ(backward.all(), 2);
  }
  model.forward(input).pow(3).sum().backward();  // an input without gradient needs no sums
  const CountingCollectives::Counts counts = own.take_counts();
  EXPECT_EQ(counts.gathers, 1);
  EXPECT_EQ(counts.all(), 1);
  model.eval();
  model.forward(input.clone().requires_grad_()).sum().backward();
  EXPECT_EQ(own.take_counts().all(), 0);
  EXPECT_EQ(counted.take_counts().all(), 0);
}

TEST_F(SyncBatchNormTest, LargeMeansKeepTheirVariance) {
  const auto model = synchronized(2, {}, at::kFloat);
  torch::manual_seed(3);
  const at::Tensor all = torch::randn({4 * size(), 2, 8}) + 4096;
  const at::Tensor output = model->forward(all.narrow(0, 4 * rank(), 4));
  OneLayer whole(2, {}, at::kDouble);
  const at::Tensor expected = whole.forward(all.to(at::kDouble)).narrow(0, 4 * rank(), 4);
  EXPECT_TRUE(at::allclose(model->layer->running_var.to(at::kDouble), whole.layer->running_var, 1e-4));
  // The product of a value near 2^12 with the scale is rounded to multiples of 2^-11 before the shift takes it back.
  EXPECT_TRUE(at::allclose(output.to(at::kDouble), expected, 0, 4e-3));
}

// Two samples have x^ = +1 and -1 but for eps: the terms of the input gradient cancel, and what is left is
// invstd * (dy0 - dy1) / 2 * eps / (var + eps) for the first sample, and its negative for the second one.
TEST_F(SyncBatchNormTest, TwoSamplesOnTwoRanksKeepTheDigitsOfTheirGradient) {
  if (size() == 1) return;
  const std::vector<float> means = {0, 3, -100, 1000};
  const std::vector<float> distances = {2, 0.01F, 0.125F, 1};  // distances from one sample to the other
  const auto channels = static_cast<std::int64_t>(means.size());
  const at::Tensor first = torch::tensor(means);
  const at::Tensor second = first + torch::tensor(distances);
  const at::Tensor first_dy = torch::tensor({0.5F, 1.7F, -2.3F, 100.25F});
  const at::Tensor second_dy = torch::tensor({-0.75F, 1.6F, 3.1F, 101.5F});
  const at::Tensor half_distance = (first.to(at::kDouble) - second.to(at::kDouble)) / 2;
  const at::Tensor variance = half_distance.square();
  const double eps = 1e-5;
  const at::Tensor scale = torch::linspace(0.5, 1.5, channels).to(at::kDouble);
  const at::Tensor of_first =
      scale * (first_dy.to(at::kDouble) - second_dy.to(at::kDouble)) / 2 * eps / (variance + eps).pow(1.5);
  for (const bool is_image : {false, true}) {
    SCOPED_TRACE(is_image ? "[1, C, 1, 1]" : "[1, C]");
    const auto model = synchronized(channels, {.eps = eps}, at::kFloat);
    const std::int64_t samples = rank() < 2 ? 1 : 0;
    const std::vector<std::int64_t> rest = is_image ? std::vector<std::int64_t>{channels, 1, 1} : std::vector{channels};
    const at::Tensor input =
        (rank() == 0 ? first : second).unsqueeze(0).narrow(0, 0, samples).reshape(with_samples(samples, rest));
    const at::Tensor leaf = input.clone().requires_grad_();
    const at::Tensor gradient = (rank() == 0 ? first_dy : second_dy).unsqueeze(0).narrow(0, 0, samples);
    model->forward(leaf).backward(gradient.reshape(leaf.sizes()));
    if (samples == 0) continue;
    const at::Tensor actual = leaf.grad().reshape({channels}).to(at::kDouble);
    const at::Tensor expected = rank() == 0 ? of_first : -of_first;
    EXPECT_TRUE(at::allclose(actual, expected, /*rtol=*/1e-6, /*atol=*/0)) << actual << "\n" << expected;
  }
}

// The gradient of a large batch in each layout, and with a length that is not a multiple of what loops take at once.
TEST_F(SyncBatchNormTest, SinglePrecisionGradientsAreThoseOfDoublePrecision) {
  if (size() == 1) return;
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf}) {
    for (const bool is_channels_last : {false, true}) {
      SCOPED_TRACE(std::string(at::toString(dtype)) + (is_channels_last ? ", channels last" : ", contiguous"));
      torch::manual_seed(11);
      const at::Tensor all = (torch::randn({3 * size(), 5, 7, 3}) + 2).to(dtype);
      const at::Tensor dy = (torch::randn({3 * size(), 5, 7, 3}) + 1).to(dtype);
      const auto format = is_channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
      const auto model = synchronized(5, {}, at::kFloat);
      const at::Tensor input = all.narrow(0, 3 * rank(), 3).clone(format).requires_grad_();
      model->forward(input).backward(dy.narrow(0, 3 * rank(), 3));
      OneLayer whole(5, {}, at::kDouble);
      const at::Tensor wide = all.to(at::kDouble).requires_grad_();
      whole.forward(wide).backward(dy.to(at::kDouble));
      const double unit = dtype == at::kHalf ? 0x1p-10 : 0x1p-18;
      EXPECT_EQ(input.grad().scalar_type(), dtype);
      EXPECT_TRUE(at::allclose(input.grad().to(at::kDouble), wide.grad().narrow(0, 3 * rank(), 3), unit, unit));
    }
  }
}

TEST_F(SyncBatchNormTest, SixteenBitInputsAreNormalizedInSinglePrecision) {
  const auto model = synchronized(3, {}, at::kFloat);
  torch::manual_seed(3);
  const at::Tensor all = torch::randn({4 * size(), 3, 8}).to(at::kBFloat16);
  const at::Tensor input = all.narrow(0, 4 * rank(), 4).clone().requires_grad_();
  const at::Tensor output = model->forward(input);
  OneLayer whole(3, {}, at::kDouble);
  const at::Tensor wide = all.to(at::kDouble).requires_grad_();
  const at::Tensor expected = whole.forward(wide);
  EXPECT_EQ(output.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(at::allclose(output.to(at::kDouble), expected.narrow(0, 4 * rank(), 4), 0x1p-8, 0x1p-8));
  EXPECT_TRUE(at::allclose(model->layer->running_var.to(at::kDouble), whole.layer->running_var, 1e-5));
  expected.pow(3).sum().backward();
  (output.to(at::kFloat).pow(3)).sum().backward();
  EXPECT_EQ(input.grad().scalar_type(), at::kBFloat16);
  const double largest = wide.grad().abs().max().item<double>();
  EXPECT_TRUE(at::allclose(input.grad().to(at::kDouble), wide.grad().narrow(0, 4 * rank(), 4), 0, 0.03 * largest));
}

TEST_F(SyncBatchNormTest, ReductionsInFlightAreNotInTheWay) {
  const auto model = synchronized(3);
  std::vector<double> value = {1.0 + rank()};
  const mpi::Ticket ticket = collectives_->start_all_reduce(value.data(), 1, DType::float64, mpi::ReduceOp::sum);
  const std::vector<at::Tensor> all = batches({3, 5}, [](int r) { return r + 2; });
  const at::Tensor mine = all[index_].clone().requires_grad_();
  model->forward(mine).pow(3).sum().backward();
  collectives_->wait(ticket);
  OneLayer whole(3, {}, at::kDouble);
  const at::Tensor combined = at::cat(all).requires_grad_();
  whole.forward(combined).pow(3).sum().backward();
  EXPECT_TRUE(at::allclose(mine.grad(), combined.grad().split_with_sizes(sizes_of(all))[index_], 1e-8, 1e-10));
  EXPECT_EQ(value[0], size() * (size() + 1) / 2.0);
}

TEST_F(SyncBatchNormTest, LayersGoBackToTheirOwnStatistics) {
  const auto model = synchronized(3);
  revert_sync_batch_norm(*model);
  OneLayer plain(3, {}, at::kDouble);
  const at::Tensor mine = batches({3, 5}, [](int r) { return r + 2; })[index_];
  EXPECT_TRUE(at::equal(model->forward(mine), plain.forward(mine)));
}

TEST_F(SyncBatchNormTest, InputsThatDifferInNeedingGradientsAreRefused) {
  if (size() == 1) return;
  const auto model = synchronized(3);
  const at::Tensor input = torch::ones({2, 3}, at::kDouble).requires_grad_(rank() == 1);
  EXPECT_THROW(model->forward(input), ConfigError);
}

TEST_F(SyncBatchNormTest, SecondDerivativesAreRefused) {
  if (size() == 1) return;
  const auto model = synchronized(3);
  const at::Tensor input = torch::randn({2, 3}, at::kDouble).requires_grad_();
  const at::Tensor loss = model->forward(input).pow(3).sum();
  EXPECT_THROW(torch::autograd::grad({loss}, {input}, {}, true, /*create_graph=*/true), ConfigError);
}

TEST_F(SyncBatchNormTest, LayersOfTorchAreNamed) {
  class Mixed : public models::Model {
   public:
    Mixed() { inner = register_module("inner", torch::nn::BatchNorm2d(3)); }
    at::Tensor forward(const at::Tensor& input) override { return inner(input); }
    torch::nn::BatchNorm2d inner{nullptr};
  };
  const auto model = std::make_shared<Mixed>();
  try {
    convert_to_sync_batch_norm(*model, *collectives_);
    ADD_FAILURE() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "layer 'inner' is a torch::nn::BatchNorm2d, which cannot be synchronized; use models::BatchNorm");
  }
}

}  // namespace sync_batch_norm_test
}  // namespace lockstep::parallel
