// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/classification.hpp"

#include <lockstep/metrics/meter.hpp>

#include <torch/types.h>

namespace lockstep::metrics {

std::optional<Answers> count_answers(const Tensor& scores, const Tensor& target) {
  const bool has_classes = at::isIntegralType(target.scalar_type(), false) && scores.dim() == target.dim() + 1 &&
                           target.sizes() == scores.sizes().slice(0, static_cast<std::size_t>(target.dim()));
  if (!has_classes) return std::nullopt;
  Answers counts{.correct = 0, .count = target.ne(kIgnored).sum().item<std::int64_t>()};
  if (counts.count > 0) counts.correct = scores.argmax(-1).eq(target).sum().item<std::int64_t>();  // no class is -100
  return counts;
}

}  // namespace lockstep::metrics
