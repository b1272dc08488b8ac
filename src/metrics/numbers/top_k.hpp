// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/metrics/meter.hpp>

#include <cstddef>
#include <cstdint>

namespace lockstep::metrics {

/// The counts of the k highest scores of each sample. Counts of parts can be added.
struct TopKCounts {
  std::int64_t samples = 0;    ///< that have a target
  std::int64_t found = 0;      ///< samples with at least one target among the k
  std::int64_t hits = 0;       ///< targets among the k
  std::int64_t positives = 0;  ///< targets

  double accuracy() const;                 ///< found / samples; 0 of nothing
  double precision(std::int64_t k) const;  ///< hits / (k samples); 0 of nothing
  double recall() const;                   ///< hits / positives; 0 of nothing
};

/// Counts samples of C scores, whose target is one class of C (or kIgnored), or a 0 or 1 for each class. Counts
/// samples. For equal scores, the class with the lower number is first; NaN is lower than any number.
/// @param k  guesses that a sample gets; 1 <= k <= C
/// @throws DataError  a class outside [0, C), labels other than 0 and 1, or k > C
/// Not collective.
TopKCounts top_k_counts(const Samples& samples, std::int64_t k);

}  // namespace lockstep::metrics
