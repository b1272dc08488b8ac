// SPDX-License-Identifier: BSD-3-Clause
#include "engine/measures/precise_statistics.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/models/layers.hpp>
#include <lockstep/parallel/synchronization.hpp>

#include <torch/types.h>

#include "parallel/store/tensor_collectives.hpp"

namespace lockstep::engine {

namespace {

using models::BatchNorm;

/// @return  [2 C + 1] float64 on the CPU
at::Tensor sums_of(const at::Tensor& input) {
  const at::Tensor values = input.detach().to(at::kDouble).transpose(0, 1).flatten(1);  // [C, elements]
  const at::Tensor count = at::full({1}, static_cast<double>(values.size(1)), at::kDouble);
  return at::cat({values.sum(1).cpu(), values.square().sum(1).cpu(), count});
}

}  // namespace

PreciseStatistics::PreciseStatistics(models::Model& model) {
  for (const auto& [name, layer] : parallel::batch_norms_of(model)) {
    if (!layer->is_training()) continue;
    index_.emplace(layer, layers_.size());
    layers_.push_back(
        {.name = name,
         .layer = layer,
         .before = {layer->running_mean.clone(), layer->running_var.clone(), layer->num_batches_tracked.clone()},
         .sums = at::zeros({2 * layer->running_mean.numel() + 1}, at::kDouble)});
  }
}

PreciseStatistics::~PreciseStatistics() {
  if (!is_finished_) restore();
}

void PreciseStatistics::restore() noexcept {
  const torch::NoGradGuard no_grad;
  for (const Layer& each_layer : layers_) {
    each_layer.layer->running_mean.copy_(each_layer.before[0]);
    each_layer.layer->running_var.copy_(each_layer.before[1]);
    each_layer.layer->num_batches_tracked.copy_(each_layer.before[2]);
  }
}

void PreciseStatistics::observe(const std::function<void()>& forward) {
  const torch::NoGradGuard no_grad;
  for (Layer& layer : layers_) layer.uses = 0;
  const models::ScopedTap tap([this](models::Block& block, const models::Tensors& inputs, const auto& next) {
    if (const auto found = index_.find(dynamic_cast<const BatchNorm*>(&block)); found != index_.end()) {
      Layer& layer = layers_[found->second];
      if (++layer.uses == 2) {
        throw ConfigError("batch norm '" + layer.name +
                          "' is used twice in one forward pass, so its statistics are not defined");
      }
      if (inputs.front().numel() > 0) layer.sums += sums_of(inputs.front());
    }
    return next(inputs);
  });
  forward();
}

void PreciseStatistics::finish(mpi::Collectives& collectives) {
  const torch::NoGradGuard no_grad;
  if (layers_.empty()) return;
  std::vector<at::Tensor> parts;
  for (const Layer& layer : layers_) parts.push_back(layer.sums);
  const at::Tensor all = at::cat(parts);
  collectives.all_reduce(all.mutable_data_ptr(), static_cast<std::size_t>(all.numel()), DType::float64,
                         mpi::ReduceOp::sum);
  restore();  // restores the layers that were not reached, and every count of batches
  std::int64_t begin = 0;
  for (const Layer& layer : layers_) {
    const std::int64_t channels = layer.layer->running_mean.numel();
    const at::Tensor sums = all.narrow(0, begin, 2 * channels + 1);
    begin += 2 * channels + 1;
    const double count = sums[2 * channels].item<double>();
    if (count == 0) continue;
    const at::Tensor mean = sums.narrow(0, 0, channels) / count;
    const at::Tensor var = sums.narrow(0, channels, channels) / count - mean.square();
    layer.layer->running_mean.copy_(mean);
    layer.layer->running_var.copy_(var.clamp_min(0));  // rounding
  }
  is_finished_ = true;
}

}  // namespace lockstep::engine
