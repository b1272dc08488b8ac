// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/metrics/meter.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::metrics {

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

}  // namespace lockstep::metrics
