// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/metrics/meter.hpp>

#include <vector>

#include "metrics/numbers/precision_recall.hpp"
#include "metrics/numbers/threshold_curve.hpp"

namespace lockstep::metrics {

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
