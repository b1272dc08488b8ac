// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/metrics/meter.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep::metrics {

/// Scores of predicted probabilities of binary labels. Means are over counted labels; NaN without labels.
class ProbabilityScores {
 public:
  /// @param samples  a probability in [0, 1] and a label 0, 1 or -1 (not counted) for each output
  /// @throws DataError  another label, a number outside [0, 1], or not as many labels as outputs
  void add(const Samples& samples);

  double brier() const;  ///< mean of (p - label)^2, in [0, 1]
  /// Mean of -ln of the probability given to what came, in nats, with probabilities kept in [1e-6, 1 - 1e-6].
  double log_loss() const;

  template <class Visit>
  void visit_words(Visit& visit) {
    visit(count_);
    visit(squares_);
    visit(logs_);
  }

 private:
  std::int64_t count_ = 0;
  ExactSum squares_;
  ExactSum logs_;
};

}  // namespace lockstep::metrics
