// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/numbers/probability.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <string>

#include "core/text/text.hpp"

namespace lockstep::metrics {

void ProbabilityScores::add(const Samples& samples) {
  constexpr double kLeast = 1e-6;
  if (samples.output_columns != samples.target_columns) {
    throw DataError("probabilities of " + std::to_string(samples.output_columns) +
                    " outputs need the same number of labels, not " + std::to_string(samples.target_columns));
  }
  for (std::size_t i = 0; i < samples.outputs.size(); ++i) {
    const int label = label_of(samples.targets[i]);
    const double p = samples.outputs[i];
    if (p < 0 || p > 1) throw DataError("the probability is " + number_text(p) + "; it must be in [0, 1]");
    if (label < 0) continue;
    const double error = p - label;
    const double kept = std::isnan(p) ? p : std::clamp(p, kLeast, 1 - kLeast);
    ++count_;
    squares_.add_product(error, error);
    logs_.add(-std::log(label == 1 ? kept : 1 - kept));
  }
}

double ProbabilityScores::brier() const { return squares_.value() / static_cast<double>(count_); }
double ProbabilityScores::log_loss() const { return logs_.value() / static_cast<double>(count_); }

}  // namespace lockstep::metrics
