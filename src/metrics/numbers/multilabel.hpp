// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/metrics/exact_sum.hpp>
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
  static constexpr std::size_t words_of(std::int64_t classes) {
    return 4 + 3 * static_cast<std::size_t>(classes) + 3 * ExactSum::kWords;
  }

  explicit Multilabel(std::int64_t classes) : classes_(static_cast<std::size_t>(classes)) {}
  Multilabel(std::span<const std::int64_t> words, std::int64_t classes);

  /// @param samples    C scores, and a target of each class: 0, 1, or -1 for those that are not counted
  /// @param threshold  the least score of what is predicted
  /// @throws DataError  any other number, or not C outputs and C targets
  void add(const Samples& samples, double threshold);

  const std::vector<ClassCounts>& classes() const noexcept { return classes_; }
  /// Mean over samples of what each one's labels come to; 0 of nothing.
  PrecisionRecall over_samples() const;
  double subset_accuracy() const;  ///< share of samples without a wrong label; 0 of nothing
  double hamming_loss() const;     ///< share of labels that are wrong; 0 of nothing
  void store(std::span<std::int64_t> words) const;

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
