// SPDX-License-Identifier: BSD-3-Clause
// Losses of regressions.
#include <lockstep/core/error.hpp>

#include <torch/types.h>

#include "batch/byte_values.hpp"
#include "models/losses/loss_rows.hpp"

namespace lockstep::models {

namespace {

/// Differences of each element, or their mean.
using Distance =
    std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target, at::Reduction::Reduction)>;

/// @param factors  of the outputs: dimension 1
at::Tensor weighted_mean(const at::Tensor& losses, const at::Tensor& factors) {
  const std::int64_t outputs = factors.numel();
  if (losses.dim() < 2 || losses.size(1) != outputs) {
    throw ConfigError("loss.weights: " + std::to_string(outputs) + " numbers are given for " +
                      std::to_string(losses.dim() < 2 ? 1 : losses.size(1)) + " outputs; give one for each output");
  }
  std::vector<std::int64_t> shape(static_cast<std::size_t>(losses.dim()), 1);
  shape[1] = outputs;
  return (losses * batch::kept_on(factors, losses.device()).to(losses.scalar_type()).view(shape)).mean();
}

Loss make_distance(const Section& loss, const Task& task, const Distance& distance) {
  require_task(loss, task, {TaskKind::regression});
  const std::vector<double> weights = loss.reals("weights");
  const at::Tensor factors = weights.empty() ? at::Tensor() : torch::tensor(weights, at::kDouble);
  return loss_of_target(
      [distance, factors](const at::Tensor& output, const at::Tensor& given, bool) {
        const at::Tensor scores = in_float32(output);
        const at::Tensor target = given.to(scores.scalar_type()).view_as(scores);
        if (!factors.defined()) return distance(scores, target, at::Reduction::Mean);
        return weighted_mean(distance(scores, target, at::Reduction::None), factors);
      },
      [](const at::Tensor& target) { return static_cast<double>(target.numel()); });
}

}  // namespace

Loss make_mse(const Section& loss, const Task& task) {
  return make_distance(loss, task, [](const at::Tensor& output, const at::Tensor& target, auto reduction) {
    return at::mse_loss(output, target, reduction);
  });
}

Loss make_l1(const Section& loss, const Task& task) {
  return make_distance(loss, task, [](const at::Tensor& output, const at::Tensor& target, auto reduction) {
    return at::l1_loss(output, target, reduction);
  });
}

Loss make_huber(const Section& loss, const Task& task) {
  return make_distance(
      loss, task, [delta = loss.real("delta")](const at::Tensor& output, const at::Tensor& target, auto reduction) {
        return at::huber_loss(output, target, reduction, delta);
      });
}

Loss make_smooth_l1(const Section& loss, const Task& task) {
  return make_distance(loss, task,
                       [beta = loss.real("beta")](const at::Tensor& output, const at::Tensor& target, auto reduction) {
                         return at::smooth_l1_loss(output, target, reduction, beta);
                       });
}

}  // namespace lockstep::models
