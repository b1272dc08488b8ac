// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/metrics/meter.hpp>

#include <cstdint>
#include <span>
#include <vector>

#include "metrics/numbers/classification.hpp"

// Labels are 1 (positive), 0 (negative), or -1 = not counted; a larger score is more positive. Functions of a curve
// need all samples at once: gather them by index.
namespace lockstep::metrics {

/// The counts for a decreasing threshold. Samples with equal scores are counted at the same threshold, so their order
/// has no influence.
struct ThresholdCurve {
  std::vector<double> thresholds;            ///< the different scores, falling; a sample is found at its own
  std::vector<std::int64_t> true_positives;  ///< found up to there
  std::vector<std::int64_t> false_positives;
  std::int64_t positives = 0;  ///< all of them
  std::int64_t negatives = 0;
  bool has_nan = false;  ///< a score is NaN: what is computed from the curve is NaN, too
};

/// @param labels  as many as scores
/// @throws std::invalid_argument  not as many
/// @throws DataError              a label other than 0, 1 and -1
ThresholdCurve threshold_curve(std::span<const double> scores, std::span<const double> labels);

/// Area under the receiver operating characteristic by trapezoids, in [0, 1]: the probability that a positive scores
/// higher than a negative, where ties count half. NaN without positives or without negatives.
double auroc(const ThresholdCurve& curve);

/// sum (R_i - R_(i-1)) P_i over falling thresholds, without interpolation. NaN without positives.
double average_precision(const ThresholdCurve& curve);
/// The same under the envelope: instead of P_i the highest precision at that recall or a higher one. Source: PASCAL VOC
/// 2010 development kit, section 3.4.1.
double interpolated_average_precision(const ThresholdCurve& curve);

/// The curve of each output: its score as that of a positive. Targets are one class, so that a sample is a positive of
/// that class and a negative of all others; or 0, 1 and -1 for each output (one output has one such target).
/// @param samples  all of them, gathered
/// @throws DataError  a class or label out of range, or targets that do not fit the outputs
std::vector<ThresholdCurve> class_curves(const Samples& samples);

/// Mean of the areas of classes with positives and negatives (one against the rest); NaN if there is none.
/// @param averaging  macro, or weighted by positives
double mean_auroc(const std::vector<ThresholdCurve>& curves, Averaging averaging);

/// Mean over all pairs of classes of the area that each one's score has among the samples of both; pairs of which one
/// has no sample are left out. NaN if none is left, or targets are not one class.
/// Source: Hand and Till, A simple generalization of the area under the ROC curve for multiple class problems.
double one_vs_one_auroc(const Samples& samples);

/// Values of classes, NaN of those without positives, and the mean of the others: NaN if there is none.
struct MeanOfClasses {
  std::vector<double> classes;
  double mean = 0;
};
MeanOfClasses mean_average_precision(const std::vector<ThresholdCurve>& curves);
MeanOfClasses mean_interpolated_average_precision(const std::vector<ThresholdCurve>& curves);

}  // namespace lockstep::metrics
