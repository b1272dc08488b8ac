// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/classification.hpp"

#include <lockstep/metrics/meter.hpp>

#include <torch/types.h>

namespace lockstep::metrics {

namespace {

/// Whether each target is one class of those that the last dimension of `logits` scores.
bool has_classes(const Tensor& logits, const Tensor& target) {
  return logits.dim() == target.dim() + 1 && target.sizes() == logits.sizes().slice(0, target.dim());
}

}  // namespace

ClassificationSums classification_sums(const Tensor& logits, const Tensor& target, const Tensor& mean_loss) {
  ClassificationSums sums;
  sums.count = target.ne(kIgnored).sum().item<std::int64_t>();
  if (sums.count == 0) return sums;
  if (!has_classes(logits, target)) {
    sums.count = target.size(0);
    sums.loss = mean_loss.item<double>() * static_cast<double>(sums.count);
    return sums;
  }
  sums.correct = logits.argmax(-1).eq(target).sum().item<std::int64_t>();  // no class is -100
  sums.loss = mean_loss.item<double>() * static_cast<double>(sums.count);
  return sums;
}

ClassificationSums operator+(const ClassificationSums& a, const ClassificationSums& b) {
  return {a.loss + b.loss, a.correct + b.correct, a.count + b.count};
}

}  // namespace lockstep::metrics
