// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/numbers/calibration.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <string>

namespace lockstep::metrics {

Calibration::Calibration(std::int64_t bins) : bins_(static_cast<std::size_t>(bins)) {}

void Calibration::add(const Samples& samples) {
  if (samples.size() > 0 && samples.target_columns != 1) {
    throw DataError("calibration needs one target, not " + std::to_string(samples.target_columns));
  }
  const auto bins = static_cast<double>(bins_.size());
  std::vector<double> probabilities;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const auto scores = samples.output(i);
    const std::int64_t target = class_of(samples.target(i).front(), static_cast<std::int64_t>(scores.size()));
    if (target == kIgnored) continue;
    probabilities.assign(scores.begin(), scores.end());
    softmax(probabilities);
    const std::size_t best = best_class(probabilities);
    const double confidence = probabilities[best];
    // A bin holds its upper border; what is NaN goes to the first, whose sum it makes NaN.
    const double place = std::isnan(confidence) ? 0 : std::clamp(std::ceil(confidence * bins) - 1, 0.0, bins - 1);
    Bin& bin = bins_[static_cast<std::size_t>(place)];
    ++bin.count;
    bin.correct += static_cast<std::int64_t>(best) == target;
    bin.confidences.add(confidence);
  }
}

double Calibration::expected_error() const {
  double gaps = 0;
  std::int64_t count = 0;
  for (const Bin& bin : bins_) {
    gaps += std::abs(static_cast<double>(bin.correct) - bin.confidences.value());
    count += bin.count;
  }
  return gaps / static_cast<double>(count);
}

}  // namespace lockstep::metrics
