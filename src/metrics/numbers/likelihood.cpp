// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/numbers/likelihood.hpp"

#include <lockstep/core/error.hpp>

#include <cmath>
#include <numbers>
#include <numeric>
#include <string>
#include <vector>

namespace lockstep::metrics {

void Likelihood::add(const Samples& samples, double smoothing, std::int64_t ignored) {
  if (samples.size() > 0 && samples.target_columns != 1) {
    throw DataError("a likelihood needs one target, not " + std::to_string(samples.target_columns));
  }
  const auto classes = static_cast<std::int64_t>(samples.output_columns);
  std::vector<double> logs(samples.output_columns);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const std::int64_t target = class_of(samples.target(i).front(), classes, ignored);
    if (target == kIgnored) continue;
    const auto scores = samples.output(i);
    logs.assign(scores.begin(), scores.end());
    log_softmax(logs);
    double loss = -logs[static_cast<std::size_t>(target)];
    if (smoothing != 0) {
      const double even = -std::accumulate(logs.begin(), logs.end(), 0.0) / static_cast<double>(classes);
      loss = (1 - smoothing) * loss + smoothing * even;
    }
    sum_.add(loss);
    ++count_;
  }
}

double Likelihood::cross_entropy() const { return sum_.value() / static_cast<double>(count_); }
double Likelihood::perplexity() const { return std::exp(cross_entropy()); }
double Likelihood::bits_per_token() const { return cross_entropy() / std::numbers::ln2; }

}  // namespace lockstep::metrics
