// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/metrics/meter.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

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

}  // namespace lockstep::metrics
