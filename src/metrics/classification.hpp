// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/tensor_fwd.hpp>

#include <cstdint>

namespace lockstep::metrics {

/// Sums over targets, from which loss and accuracy follow. Sums of several ranks add up to those of all.
struct ClassificationSums {
  double loss = 0;           ///< sum over the counted targets
  std::int64_t correct = 0;  ///< targets whose class has the highest logit
  std::int64_t count = 0;    ///< targets that are not ignored (-100)

  double mean_loss() const { return loss / static_cast<double>(count); }
  double accuracy() const { return static_cast<double>(correct) / static_cast<double>(count); }
};

/// Counts one batch.
///
/// @param logits     [..., C], unnormalised
/// @param target     [...] int64 in [0, C), or -100: not counted. Of another shape, such as a number for each output,
///                   [N, ...]: then samples are counted, and none as correct
/// @param mean_loss  [] the batch's mean loss over its counted targets
/// Not collective.
ClassificationSums classification_sums(const Tensor& logits, const Tensor& target, const Tensor& mean_loss);

ClassificationSums operator+(const ClassificationSums& a, const ClassificationSums& b);

}  // namespace lockstep::metrics
