// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/numbers/top_k.hpp"

#include <lockstep/core/error.hpp>

#include <string>

#include "metrics/numbers/ratio.hpp"

namespace lockstep::metrics {

namespace {

void count_class(std::span<const double> scores, double target, std::size_t k, TopKCounts& counts) {
  const std::int64_t label = class_of(target, static_cast<std::int64_t>(scores.size()));
  if (label == kIgnored) return;
  const bool is_hit = place_of(scores, static_cast<std::size_t>(label)) < k;
  ++counts.samples;
  ++counts.positives;
  counts.found += is_hit;
  counts.hits += is_hit;
}

void count_labels(std::span<const double> scores, std::span<const double> target, std::size_t k, TopKCounts& counts) {
  std::int64_t hits = 0;
  for (std::size_t c = 0; c < scores.size(); ++c) {
    const int label = label_of(target[c]);
    if (label < 0) throw DataError("top_k counts every label: -1 (not counted) is not supported");
    counts.positives += label;
    if (label == 1 && place_of(scores, c) < k) ++hits;
  }
  ++counts.samples;
  counts.found += hits > 0;
  counts.hits += hits;
}

}  // namespace

double TopKCounts::accuracy() const { return ratio(found, samples); }
double TopKCounts::precision(std::int64_t k) const { return ratio(hits, k * samples); }
double TopKCounts::recall() const { return ratio(hits, positives); }

TopKCounts top_k_counts(const Samples& samples, std::int64_t k) {
  TopKCounts counts;
  if (samples.size() == 0) return counts;
  if (k < 1 || k > static_cast<std::int64_t>(samples.output_columns)) {
    throw DataError("the best " + std::to_string(k) + " of " + std::to_string(samples.output_columns) +
                    " classes cannot be taken");
  }
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (samples.has_target_of_each_class()) {
      count_labels(samples.output(i), samples.target(i), static_cast<std::size_t>(k), counts);
    } else {
      count_class(samples.output(i), samples.target(i).front(), static_cast<std::size_t>(k), counts);
    }
  }
  return counts;
}

}  // namespace lockstep::metrics
