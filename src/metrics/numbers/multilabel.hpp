// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/metrics/meter.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "metrics/numbers/precision_recall.hpp"

namespace lockstep::metrics {

/// Samples of which each of C classes may be true by itself, predicted where its score is high enough.
class Multilabel {
 public:
  explicit Multilabel(std::int64_t classes) : classes_(static_cast<std::size_t>(classes)) {}
  /// @param samples    C scores, and a target of each class: 0, 1, or -1 for those that are not counted
  /// @param threshold  the least score of what is predicted
  /// @throws DataError  any other number, or not C outputs and C targets
  void add(const Samples& samples, double threshold);

  const std::vector<ClassCounts>& classes() const noexcept { return classes_; }
  /// Mean over samples of what each one's labels come to; 0 of nothing.
  PrecisionRecall over_samples() const;
  double subset_accuracy() const;  ///< share of samples without a wrong label; 0 of nothing
  double hamming_loss() const;     ///< share of labels that are wrong; 0 of nothing

  template <class Visit>
  void visit_words(Visit& visit) {
    for (std::int64_t* const count : {&samples_, &faultless_, &labels_, &wrong_}) visit(*count);
    for (ClassCounts& counts : classes_) {
      for (std::int64_t* const count : {&counts.true_positives, &counts.predicted, &counts.support}) visit(*count);
    }
    for (ExactSum* const sum : {&precision_, &recall_, &f_score_}) visit(*sum);
  }

 private:
  std::int64_t samples_ = 0;
  std::int64_t faultless_ = 0;  // samples
  std::int64_t labels_ = 0;
  std::int64_t wrong_ = 0;  // labels
  std::vector<ClassCounts> classes_;
  ExactSum precision_;
  ExactSum recall_;
  ExactSum f_score_;
};

}  // namespace lockstep::metrics
