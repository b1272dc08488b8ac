// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/numbers/curves.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "metrics/numbers/ratio.hpp"

namespace lockstep::metrics {

namespace {

bool has_area(const ThresholdCurve& curve) { return !curve.has_nan && curve.positives > 0 && curve.negatives > 0; }

double precision_at(const ThresholdCurve& curve, std::size_t i) {
  return defined_ratio(curve.true_positives[i], curve.true_positives[i] + curve.false_positives[i]);
}

/// sum of the steps in recall times `precision` there.
double area_of_steps(const ThresholdCurve& curve, const std::vector<double>& precision) {
  double area = 0;
  std::int64_t before = 0;
  for (std::size_t i = 0; i < precision.size(); ++i) {
    area += defined_ratio(curve.true_positives[i] - before, curve.positives) * precision[i];
    before = curve.true_positives[i];
  }
  return area;
}

std::vector<double> precisions(const ThresholdCurve& curve) {
  std::vector<double> result;
  for (std::size_t i = 0; i < curve.thresholds.size(); ++i) result.push_back(precision_at(curve, i));
  return result;
}

/// The label that sample i asks of output c: 0, 1 or -1.
double label_at(const Samples& samples, std::size_t i, std::size_t c) {
  if (samples.target_columns == samples.output_columns) return samples.target(i)[c];
  const std::int64_t target = class_of(samples.target(i).front(), static_cast<std::int64_t>(samples.output_columns));
  return target == kIgnored ? -1 : target == static_cast<std::int64_t>(c) ? 1 : 0;
}

MeanOfClasses mean_of(const std::vector<ThresholdCurve>& curves, double (*value)(const ThresholdCurve&)) {
  MeanOfClasses result;
  double sum = 0;
  double count = 0;
  for (const ThresholdCurve& curve : curves) {
    result.classes.push_back(value(curve));
    if (curve.positives == 0 && !curve.has_nan) continue;
    sum += result.classes.back();
    ++count;
  }
  result.mean = count == 0 ? kNan : sum / count;
  return result;
}

}  // namespace

ThresholdCurve threshold_curve(std::span<const double> scores, std::span<const double> labels) {
  if (scores.size() != labels.size()) throw std::invalid_argument("a curve needs the same number of labels and scores");
  ThresholdCurve curve;
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    if (label_of(labels[i]) < 0) continue;
    curve.has_nan = curve.has_nan || std::isnan(scores[i]);
    order.push_back(i);
  }
  if (curve.has_nan) return curve;
  std::sort(order.begin(), order.end(), [scores](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
  for (std::size_t place = 0; place < order.size(); ++place) {
    const std::size_t i = order[place];
    ++(label_of(labels[i]) == 1 ? curve.positives : curve.negatives);
    const bool is_last_of_its_score = place + 1 == order.size() || scores[order[place + 1]] != scores[i];
    if (!is_last_of_its_score) continue;
    curve.thresholds.push_back(scores[i]);
    curve.true_positives.push_back(curve.positives);
    curve.false_positives.push_back(curve.negatives);
  }
  return curve;
}

double auroc(const ThresholdCurve& curve) {
  if (!has_area(curve)) return kNan;
  double twice = 0;  // the area in units of one positive times one negative: integers, exact below 2^53
  std::int64_t width_before = 0;
  std::int64_t height_before = 0;
  for (std::size_t i = 0; i < curve.thresholds.size(); ++i) {
    twice += static_cast<double>(curve.false_positives[i] - width_before) *
             static_cast<double>(curve.true_positives[i] + height_before);
    width_before = curve.false_positives[i];
    height_before = curve.true_positives[i];
  }
  return twice / (2 * static_cast<double>(curve.positives) * static_cast<double>(curve.negatives));
}

double average_precision(const ThresholdCurve& curve) {
  return curve.has_nan || curve.positives == 0 ? kNan : area_of_steps(curve, precisions(curve));
}

double interpolated_average_precision(const ThresholdCurve& curve) {
  if (curve.has_nan || curve.positives == 0) return kNan;
  std::vector<double> envelope = precisions(curve);
  for (std::size_t i = envelope.size() - 1; i-- > 0;) envelope[i] = std::max(envelope[i], envelope[i + 1]);
  return area_of_steps(curve, envelope);
}

std::vector<ThresholdCurve> class_curves(const Samples& samples) {
  if (samples.size() > 0 && samples.target_columns != 1 && samples.target_columns != samples.output_columns) {
    throw DataError("curves of " + std::to_string(samples.output_columns) +
                    " outputs need one target, or one per output, not " + std::to_string(samples.target_columns));
  }
  std::vector<ThresholdCurve> curves;
  std::vector<double> scores(samples.size());
  std::vector<double> labels(samples.size());
  for (std::size_t c = 0; c < samples.output_columns; ++c) {
    for (std::size_t i = 0; i < samples.size(); ++i) {
      scores[i] = samples.output(i)[c];
      labels[i] = label_at(samples, i, c);
    }
    curves.push_back(threshold_curve(scores, labels));
  }
  return curves;
}

double mean_auroc(const std::vector<ThresholdCurve>& curves, Averaging averaging) {
  double sum = 0;
  double weights = 0;
  for (const ThresholdCurve& curve : curves) {
    if (curve.has_nan) return kNan;
    if (curve.positives == 0 || curve.negatives == 0) continue;
    const double weight = averaging == Averaging::weighted ? static_cast<double>(curve.positives) : 1;
    sum += weight * auroc(curve);
    weights += weight;
  }
  return weights == 0 ? kNan : sum / weights;
}

double one_vs_one_auroc(const Samples& samples) {
  if (samples.target_columns != 1 || samples.output_columns < 2) return kNan;
  const auto classes = static_cast<std::int64_t>(samples.output_columns);
  std::vector<std::vector<std::size_t>> members(samples.output_columns);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const std::int64_t target = class_of(samples.target(i).front(), classes);
    if (target != kIgnored) members[static_cast<std::size_t>(target)].push_back(i);
  }
  const auto area_of = [&](std::size_t positive, std::size_t negative) {
    std::vector<double> scores;
    std::vector<double> labels;
    for (const std::size_t c : {positive, negative}) {
      for (const std::size_t i : members[c]) {
        scores.push_back(samples.output(i)[positive]);
        labels.push_back(c == positive ? 1 : 0);
      }
    }
    return auroc(threshold_curve(scores, labels));
  };
  double sum = 0;
  double pairs = 0;
  for (std::size_t a = 0; a < members.size(); ++a) {
    for (std::size_t b = a + 1; b < members.size(); ++b) {
      if (members[a].empty() || members[b].empty()) continue;
      sum += (area_of(a, b) + area_of(b, a)) / 2;
      ++pairs;
    }
  }
  return pairs == 0 ? kNan : sum / pairs;
}

MeanOfClasses mean_average_precision(const std::vector<ThresholdCurve>& curves) {
  return mean_of(curves, average_precision);
}

MeanOfClasses mean_interpolated_average_precision(const std::vector<ThresholdCurve>& curves) {
  return mean_of(curves, interpolated_average_precision);
}

}  // namespace lockstep::metrics
