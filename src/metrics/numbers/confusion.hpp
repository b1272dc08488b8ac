// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/metrics/meter.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::metrics {

/// The confusion matrix: the number of samples of each class that were predicted as each class. Counts of parts can be
/// added.
class Confusion {
 public:
  /// @param counts  [C, C]: rows are targets, columns predictions
  Confusion(std::span<const std::int64_t> counts, std::int64_t classes);

  std::int64_t classes() const noexcept { return classes_; }
  std::int64_t at(std::int64_t target, std::int64_t prediction) const {
    return counts_[static_cast<std::size_t>(target * classes_ + prediction)];
  }
  const std::vector<std::int64_t>& counts() const noexcept { return counts_; }
  std::int64_t total() const noexcept { return total_; }
  std::int64_t correct() const noexcept { return correct_; }
  std::int64_t support(std::int64_t c) const { return support_[static_cast<std::size_t>(c)]; }      ///< targets
  std::int64_t predicted(std::int64_t c) const { return predicted_[static_cast<std::size_t>(c)]; }  ///< predictions

 private:
  std::int64_t classes_;
  std::vector<std::int64_t> counts_;
  std::vector<std::int64_t> support_;
  std::vector<std::int64_t> predicted_;
  std::int64_t total_ = 0;
  std::int64_t correct_ = 0;
};

/// Adds samples to the counts of a Confusion.
/// @param samples  outputs: C scores, of which the highest is the prediction, or one column with the predicted class;
///                 targets: one class
/// @param ignored  a target that is not counted, as kIgnored is not
/// @throws DataError  a class outside [0, C), or neither C outputs nor one
/// Not collective.
void count_confusion(const Samples& samples, std::int64_t classes, std::int64_t ignored,
                     std::span<std::int64_t> counts);

/// Mean of the recalls of the classes that have targets; 0 of nothing.
double balanced_accuracy(const Confusion& confusion);
/// Cohen's kappa, (p_o - p_e) / (1 - p_e): agreement beyond chance, at most 1. NaN of fewer than two samples, and where
/// chance alone agrees always.
double cohen_kappa(const Confusion& confusion);
/// Matthews' correlation coefficient in [-1, 1]; 0 where it is undefined.
/// Source: Gorodkin, Comparing two K-category assignments by a K-category correlation coefficient, equation 8.
double matthews(const Confusion& confusion);

/// Overlap of predictions and targets, by class and as means over the classes that have any. A class with neither
/// targets nor predictions is NaN; so is a mean over no class.
struct Overlap {
  std::vector<double> iou;   ///< intersection over union, tp / (tp + fp + fn)
  std::vector<double> acc;   ///< tp / (tp + fn); NaN without targets
  std::vector<double> dice;  ///< 2 tp / (2 tp + fp + fn)
  double miou = 0;
  double macc = 0;
  double mdice = 0;
  double aacc = 0;  ///< accuracy over all pixels; 0 if there are none
};
Overlap overlap(const Confusion& confusion);

}  // namespace lockstep::metrics
