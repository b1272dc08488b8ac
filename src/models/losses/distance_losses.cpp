// SPDX-License-Identifier: BSD-3-Clause
// Losses of regressions.
#include <lockstep/core/error.hpp>

#include <torch/types.h>

#include "batch/byte_values.hpp"
#include "models/losses/field_weights.hpp"
#include "models/losses/loss_rows.hpp"

namespace lockstep::models {

namespace {

/// Differences of each element, or their mean.
using Distance =
    std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target, at::Reduction::Reduction)>;

/// @param factors  of the outputs: dimension 1
at::Tensor with_factors(const at::Tensor& losses, const at::Tensor& factors) {
  const std::int64_t outputs = factors.numel();
  if (losses.dim() < 2 || losses.size(1) != outputs) {
    throw ConfigError("loss.weights: " + std::to_string(outputs) + " numbers are given for " +
                      std::to_string(losses.dim() < 2 ? 1 : losses.size(1)) + " outputs; give one for each output");
  }
  std::vector<std::int64_t> shape(static_cast<std::size_t>(losses.dim()), 1);
  shape[1] = outputs;
  return losses * batch::kept_on(factors, losses.device()).to(losses.scalar_type()).view(shape);
}

/// The weight of each target, which can be multiplied with `target`: 0 in gaps, and elsewhere that of its latitude
/// times that of its sample. Undefined if all weigh 1.
/// @param mask  see mask_of
at::Tensor target_weights(const batch::Batch& batch, const at::Tensor& target, const at::Tensor& mask,
                          const FieldWeights& weights) {
  at::Tensor product;
  const at::Tensor counted = mask.defined() ? mask.to(target.scalar_type()) : mask;
  for (const at::Tensor& factor : {counted, weights.area(target), weights.samples(batch, target)}) {
    if (factor.defined()) product = product.defined() ? product * factor : factor;
  }
  return product;
}

/// The sum of the weights of the targets of a batch. Those of latitudes have the mean 1, so that only gaps and samples
/// change it.
double sum_of_weights(const batch::Batch& batch, const FieldWeights& weights) {
  const at::Tensor& target = batch.target();
  const at::Tensor mask = mask_of(batch, target);
  if (!mask.defined() && !weights.has_samples()) return static_cast<double>(target.numel());
  if (!weights.has_area() && !weights.has_samples()) return static_cast<double>(mask.sum().item<std::int64_t>());
  return target_weights(batch, target.to(at::kDouble), mask, weights).expand_as(target).sum().item<double>();
}

/// The sum of weighted distances by the sum of the weights of points; the factors of outputs and channels do not divide
/// it.
/// @param factors  of outputs; undefined = none
at::Tensor mean_of_fields(const Distance& distance, const batch::Batch& batch, const at::Tensor& scores,
                          const at::Tensor& target, const at::Tensor& mask, const at::Tensor& factors,
                          const FieldWeights& weights) {
  at::Tensor losses = distance(without_gaps(scores, mask), without_gaps(target, mask), at::Reduction::None);
  if (factors.defined()) losses = with_factors(losses, factors);
  if (weights.has_channels()) losses = losses * weights.channels(losses);
  const at::Tensor points = target_weights(batch, losses, mask, weights);
  if (points.defined()) losses = losses * points;
  if (!mask.defined() && !weights.has_samples()) return losses.mean();
  return losses.sum() / points.expand_as(losses).sum().clamp_min(1e-12);
}

Loss make_distance(const Section& loss, const Task& task, const Distance& distance) {
  require_task(loss, task, {TaskKind::regression});
  const std::vector<double> numbers = loss.has("weights") ? loss.reals("weights") : std::vector<double>();
  const at::Tensor factors = numbers.empty() ? at::Tensor() : torch::tensor(numbers, at::kDouble);
  const FieldWeights weights = FieldWeights::from(loss, task);
  if (factors.defined() && (weights.has_area() || weights.has_channels())) {
    throw ConfigError(loss.cite("weights") + " cannot be combined with loss.area or loss.channel_weights; use " +
                      "loss.channel_weights in its place");
  }
  const auto value = [distance, factors, weights](const batch::Outputs& outputs, const batch::Batch& batch, bool) {
    const at::Tensor scores = in_float32(outputs.main());
    const at::Tensor target = batch.target().to(scores.scalar_type()).view_as(scores);
    at::Tensor mask = mask_of(batch, batch.target());
    if (mask.defined()) mask = mask.reshape(scores.sizes());
    if (mask.defined() && factors.defined()) {
      throw ConfigError(
          "loss.weights cannot be used with gaps, which the value mask of the batch marks; use "
          "loss.channel_weights");
    }
    const bool is_plain = !mask.defined() && !factors.defined() && !weights.has_area() && !weights.has_channels() &&
                          !weights.has_samples();
    if (is_plain) return distance(scores, target, at::Reduction::Mean);
    return mean_of_fields(distance, batch, scores, target, mask, factors, weights);
  };
  return {.value = value, .count = [weights](const batch::Batch& batch) { return sum_of_weights(batch, weights); }};
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
