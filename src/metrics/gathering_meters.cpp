// SPDX-License-Identifier: BSD-3-Clause
// Meters that need all samples at once.
#include <lockstep/core/error.hpp>

#include <array>
#include <limits>

#include "metrics/meter_rows.hpp"
#include "metrics/numbers/curves.hpp"
#include "metrics/numbers/regression.hpp"
#include "metrics/numbers/reidentification.hpp"

namespace lockstep::metrics {

namespace {

/// Scores of samples of one class each as probabilities, so that those of different samples can be compared.
Samples comparable(const Samples& samples) {
  Samples result = samples;
  if (samples.has_target_of_each_class() || samples.output_columns < 2) return result;
  for (std::size_t i = 0; i < result.size(); ++i) {
    softmax(std::span(result.outputs).subspan(i * result.output_columns, result.output_columns));
  }
  return result;
}

/// Mean over outputs of what `value` makes of predictions and targets of one.
double mean_over_outputs(const Samples& samples,
                         double (*value)(std::span<const double> predictions, std::span<const double> targets)) {
  double sum = 0;
  std::vector<double> predictions(samples.size());
  std::vector<double> targets(samples.size());
  for (std::size_t j = 0; j < samples.output_columns; ++j) {
    for (std::size_t i = 0; i < samples.size(); ++i) {
      predictions[i] = samples.output(i)[j];
      targets[i] = samples.target(i)[j];
    }
    sum += value(predictions, targets);
  }
  return sum / static_cast<double>(samples.output_columns);
}

Reading read_order(const Samples& samples) {
  if (samples.output_columns != samples.target_columns) {
    throw DataError("errors of " + std::to_string(samples.output_columns) +
                    " outputs need the same number of targets, not " + std::to_string(samples.target_columns));
  }
  Reading reading;
  for (const auto value : {median_absolute_error, max_error, spearman}) {
    reading.numbers.push_back(mean_over_outputs(samples, value));
  }
  return reading;
}

Reading read_auroc(const Samples& gathered) {
  const Samples samples = comparable(gathered);
  const auto curves = class_curves(samples);
  return {{mean_auroc(curves, Averaging::macro), mean_auroc(curves, Averaging::weighted), one_vs_one_auroc(samples)}};
}

Reading read_average_precision(const Samples& samples) {
  const auto curves = class_curves(comparable(samples));
  const MeanOfClasses plain = mean_average_precision(curves);
  const MeanOfClasses interpolated = mean_interpolated_average_precision(curves);
  return {{plain.mean, interpolated.mean}, {row_of("average_precision", plain.classes)}};
}

/// Queries or gallery of samples whose targets are identity, camera and whether it is a query.
struct Side {
  Matrix features;
  std::vector<Sighting> sightings;
};

std::array<Side, 2> sides_of(const Samples& samples) {
  if (samples.size() > 0 && samples.target_columns != 3) {
    throw DataError("reidentification needs three targets (identity, camera, 1 for a query), not " +
                    std::to_string(samples.target_columns));
  }
  std::array<Side, 2> sides;
  for (Side& side : sides) side.features.columns = samples.output_columns;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const auto target = samples.target(i);
    const int is_query = label_of(target[2]);
    if (is_query < 0) continue;
    Side& side = sides[is_query == 1 ? 0 : 1];
    const auto features = samples.output(i);
    side.features.values.insert(side.features.values.end(), features.begin(), features.end());
    side.sightings.push_back({static_cast<std::int64_t>(target[0]), static_cast<std::int64_t>(target[1])});
  }
  return sides;
}

Reading read_reidentification(const Samples& samples, bool is_cosine, bool reranks) {
  constexpr std::array<std::size_t, 3> kRanks = {1, 5, 10};
  const auto [queries, gallery] = sides_of(samples);
  if (queries.sightings.empty() || gallery.sightings.empty()) {
    return {std::vector(kRanks.size() + 3, std::numeric_limits<double>::quiet_NaN())};
  }
  const auto between = is_cosine ? cosine_distances : squared_distances;
  Matrix distances = between(queries.features, gallery.features);
  if (reranks) {
    distances =
        rerank(distances, between(queries.features, queries.features), between(gallery.features, gallery.features), {});
  }
  const Reidentification found = reidentification(distances, queries.sightings, gallery.sightings, kRanks.back());
  Reading reading;
  for (const std::size_t rank : kRanks) reading.numbers.push_back(found.cmc[rank - 1]);
  for (const double value : {found.map, found.minp, (found.map + found.cmc.front()) / 2}) {
    reading.numbers.push_back(value);
  }
  reading.tables.push_back(row_of("cmc", found.cmc));
  return reading;
}

}  // namespace

Meter regression_order_meter(const Section& /*options*/, std::int64_t /*classes*/) {
  return {.results = {{"median_absolute_error", false}, {"max_error", false}, {"spearman"}}, .read_all = read_order};
}

Meter auroc_meter(const Section& /*options*/, std::int64_t /*classes*/) {
  return {.results = {{"auroc"}, {"auroc_weighted"}, {"auroc_one_vs_one"}}, .read_all = read_auroc};
}

Meter average_precision_meter(const Section& /*options*/, std::int64_t /*classes*/) {
  return {.results = {{"map"}, {"map_interpolated"}}, .read_all = read_average_precision};
}

Meter reidentification_meter(const Section& options, std::int64_t /*classes*/) {
  return {.results = {{"rank_1"}, {"rank_5"}, {"rank_10"}, {"reid_map"}, {"minp"}, {"reid_mean"}},
          .read_all = [is_cosine = options.text("distance") == "cosine", reranks = options.boolean("rerank")](
                          const Samples& samples) { return read_reidentification(samples, is_cosine, reranks); }};
}

}  // namespace lockstep::metrics
