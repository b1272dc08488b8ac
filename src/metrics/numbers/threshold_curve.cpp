// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/numbers/threshold_curve.hpp"

#include <lockstep/metrics/meter.hpp>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "metrics/numbers/ratio.hpp"

namespace lockstep::metrics {

namespace {

double rate(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? kNan : static_cast<double>(part) / static_cast<double>(whole);
}

bool has_area(const ThresholdCurve& curve) { return !curve.has_nan && curve.positives > 0 && curve.negatives > 0; }

double precision_at(const ThresholdCurve& curve, std::size_t i) {
  return rate(curve.true_positives[i], curve.true_positives[i] + curve.false_positives[i]);
}

/// sum of the steps in recall times `precision` there.
double area_of_steps(const ThresholdCurve& curve, const std::vector<double>& precision) {
  double area = 0;
  std::int64_t before = 0;
  for (std::size_t i = 0; i < precision.size(); ++i) {
    area += rate(curve.true_positives[i] - before, curve.positives) * precision[i];
    before = curve.true_positives[i];
  }
  return area;
}

std::vector<double> precisions(const ThresholdCurve& curve) {
  std::vector<double> result;
  for (std::size_t i = 0; i < curve.thresholds.size(); ++i) result.push_back(precision_at(curve, i));
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

}  // namespace lockstep::metrics
