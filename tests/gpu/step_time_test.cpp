// SPDX-License-Identifier: BSD-3-Clause
// The wrapper beside the same work without it, in alternating blocks of steps.
#include <lockstep/models/layers.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "gpu_test.hpp"
#include "multirank/parallel/parallel_test.hpp"

namespace lockstep::parallel {
namespace step_time_test {

constexpr int kLayers = 6;
constexpr std::int64_t kWidth = 4096;
constexpr std::int64_t kSamples = 512;
constexpr int kBlocks = 40;
constexpr int kStepsOfBlock = 5;

class Wide : public models::Model {
 public:
  Wide() {
    for (int i = 0; i < kLayers; ++i) {
      auto layer = std::make_shared<Linear>(kWidth, kWidth);
      layers_.push_back(register_module("l" + std::to_string(i), std::move(layer)));
    }
  }
  at::Tensor forward(const at::Tensor& input) override {
    at::Tensor values = input;
    for (const auto& layer : layers_) values = at::relu(models::run(*layer, values));
    return values;
  }
  models::LossMap losses(const at::Tensor& output, const at::Tensor& target) const override {
    return {{"loss", (output - target).square().mean()}};
  }

 private:
  std::vector<std::shared_ptr<Linear>> layers_;
};

class StepTimeTest : public GpuTest {};

TEST_F(StepTimeTest, OneRankPaysNothingForTheWrapper) {
  if (world_.size() > 1) GTEST_SKIP() << "ranks that share a GPU are not to be timed";
  const at::TensorOptions options = at::TensorOptions().device(device_->torch());
  const batch::Batch batch = {torch::randn({kSamples, kWidth}, options), torch::randn({kSamples, kWidth}, options)};
  const auto collectives = mpi::make_collectives(world_, {.gpu = device_->gpu()});
  const auto wrapped = std::make_shared<Wide>();
  wrapped->to(device_->torch());
  DistributedDataParallel wrapper(wrapped, world_, *collectives, {});
  optim::OptimWrapper optimizer = make_optimizer(wrapper.parameters(), {{"name", "sgd"}, {"lr", "0.001"}});
  Wide plain;
  plain.to(device_->torch());
  const auto parameters = plain.parameters();

  const auto wrapped_step = [&] { wrapper.train_step(batch, optimizer); };
  const auto plain_step = [&] {
    const at::Tensor loss = models::total_loss(plain.losses(plain.forward(batch.input()), batch.target()));
    loss.backward();
    const torch::NoGradGuard no_grad;
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& parameter : parameters) gradients.push_back(parameter.grad());
    at::_fused_sgd_(parameters, gradients, {}, 0, 0, 0.001, 0, false, false, true);
    for (const at::Tensor& parameter : parameters) parameter.mutable_grad().reset();
    loss.item<float>();
  };
  const auto block = [](const auto& step) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kStepsOfBlock; ++i) step();  // each ends with the host waiting for the loss
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    return took.count() / kStepsOfBlock;
  };
  for (int i = 0; i < 4; ++i) {  // warm up
    block(wrapped_step);
    block(plain_step);
  }
  std::vector<double> with;
  std::vector<double> without;
  std::vector<double> ratios;
  for (int i = 0; i < kBlocks; ++i) {
    with.push_back(block(wrapped_step));
    without.push_back(block(plain_step));
    ratios.push_back(with.back() / without.back());
  }
  std::sort(ratios.begin(), ratios.end());
  std::nth_element(with.begin(), with.begin() + kBlocks / 2, with.end());
  std::nth_element(without.begin(), without.begin() + kBlocks / 2, without.end());
  // Order statistics 14 and 27 of 40 bound the median with 95 % confidence.
  std::printf("step of %d x Linear(%ld), %ld samples, fp32: wrapped %.3f ms, plain %.3f ms, ratio %.4f [%.4f, %.4f]\n",
              kLayers, static_cast<long>(kWidth), static_cast<long>(kSamples), with[kBlocks / 2], without[kBlocks / 2],
              ratios[kBlocks / 2], ratios[13], ratios[26]);
  EXPECT_LT(ratios[kBlocks / 2], 1.02);
}

}  // namespace step_time_test
}  // namespace lockstep::parallel
