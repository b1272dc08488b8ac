// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/metrics/meter.hpp>

#include <cstdint>
#include <vector>

namespace lockstep::metrics {

/// Likelihoods of the targets for the predicted probabilities. Means are over all counted targets, not over batches,
/// and NaN without targets.
class Likelihood {
 public:
  /// @param samples    C unnormalized scores and one class of C each
  /// @param smoothing  weight that is spread evenly over all classes instead of resting on the target; in [0, 1]
  /// @param ignored    a target that is not counted, as kIgnored is not
  /// @throws DataError  a class outside [0, C), or several targets
  void add(const Samples& samples, double smoothing = 0, std::int64_t ignored = kIgnored);

  std::int64_t count() const noexcept { return count_; }  ///< number of targets
  double cross_entropy() const;                           ///< mean of -ln p(target), in nats
  double perplexity() const;                              ///< exp(cross_entropy)
  double bits_per_token() const;                          ///< cross_entropy / ln 2

  template <class Visit>
  void visit_words(Visit& visit) {
    visit(count_);
    visit(sum_);
  }

 private:
  std::int64_t count_ = 0;
  ExactSum sum_;
};

/// The difference of confidence and accuracy, in bins of equal width of the confidence.
class Calibration {
 public:
  explicit Calibration(std::int64_t bins);
  /// @param samples  C unnormalized scores and one class of C, or kIgnored, each
  /// @throws DataError  a class outside [0, C), or several targets
  void add(const Samples& samples);

  /// Expected calibration error: mean over samples of |accuracy - mean confidence| of their bin, where the confidence
  /// is the highest probability. In [0, 1]; NaN of nothing, or of scores that are NaN. Source: Guo et al., On
  /// Calibration of Modern Neural Networks, equation 3.
  double expected_error() const;

  template <class Visit>
  void visit_words(Visit& visit) {
    for (Bin& bin : bins_) {
      visit(bin.count);
      visit(bin.correct);
      visit(bin.confidences);
    }
  }

 private:
  struct Bin {
    std::int64_t count = 0;
    std::int64_t correct = 0;
    ExactSum confidences;
  };
  std::vector<Bin> bins_;
};

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
