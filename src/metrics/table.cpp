// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/keys.hpp>
#include <lockstep/metrics/meter.hpp>

#include "core/numbers/latitudes.hpp"
#include "metrics/meter_rows.hpp"

namespace lockstep::metrics {

namespace {

constexpr const char* kLogits = "output: C unnormalized scores, target: one class of C, or -100: not counted";
constexpr const char* kOutputs = "output and target: the same number of values";

constexpr const char* kFields =
    "output and target: fields [N, C, space...]; the batch value mask, if there is one, is 0 at points that do not "
    "count";
constexpr const char* kWholeFields = "output and target: fields [N, C, space...] with 1 to 3 axes and without gaps";

constexpr double kLargest = 1e9;  // upper limit of integer options

KeySpec averaging(const std::vector<std::string>& choices = {"macro", "weighted", "micro"}) {
  return keys::choice("average", "macro", "Averaging over classes", choices);
}

KeySpec ignored() {
  return keys::integer("ignored", "-100", "Additional target value that is ignored", -kLargest, kLargest);
}

}  // namespace

const std::vector<MeterRow>& builtin_meters() {
  static const std::vector<MeterRow> rows = {
      {"top_k",
       "Accuracy, precision and recall of the k highest scores",
       "output: C scores, target: one class of C, -100: not counted, or 0 or 1 for each class",
       {keys::integer("k", "5", "Number of highest scores that count as predictions", 1, kLargest)},
       top_k_meter},
      {"confusion",
       "Confusion matrix, precision, recall, F score, balanced accuracy, Cohen's kappa, Matthews correlation "
       "coefficient",
       kLogits,
       {averaging(), keys::real("beta", "1", "Weight of recall relative to precision in the F score", 1e-3, 1e3),
        ignored()},
       confusion_meter},
      {"overlap",
       "Intersection over union, accuracy and Dice coefficient, per class and averaged",
       kLogits,
       {ignored()},
       overlap_meter},
      {"perplexity",
       "Cross-entropy in nats and bits, and perplexity",
       kLogits,
       {keys::real("smoothing", "0", "Label smoothing: weight that is distributed over all classes", 0, 1), ignored()},
       perplexity_meter},
      {"calibration",
       "Calibration error: difference between confidence and accuracy",
       kLogits,
       {keys::integer("bins", "15", "Number of confidence bins of equal width", 1, 10000)},
       calibration_meter},
      {"multilabel",
       "Precision, recall, F1, subset accuracy and Hamming loss of independent labels",
       "output: C scores, target: 0, 1 or -1 (not counted) for each",
       {averaging({"macro", "weighted", "micro", "samples"}),
        keys::real("threshold", "0.5", "Minimum score of a predicted label", -1e30, 1e30)},
       multilabel_meter},
      {"probability",
       "Brier score and logarithmic loss",
       "output: probabilities in [0, 1], target: 0, 1 or -1 (not counted) for each",
       {},
       probability_meter},
      {"regression",
       "Mean errors, coefficient of determination and correlation, averaged over outputs",
       kOutputs,
       {},
       regression_meter},
      {"regression_order",
       "Median and maximum error and rank correlation, averaged over outputs; gathers all samples",
       kOutputs,
       {},
       regression_order_meter},
      {"auroc",
       "Area under the ROC curve, one-vs-rest and one-vs-one; gathers all samples",
       "output: C scores, target: one class of C, -100: not counted, or 0, 1 or -1 (not counted) for each output",
       {},
       auroc_meter},
      {"average_precision",
       "Area under the precision-recall curve, averaged over classes; gathers all samples",
       "output: C scores, target: one class of C, -100: not counted, or 0, 1 or -1 (not counted) for each output",
       {},
       average_precision_meter},
      {"reidentification",
       "CMC ranks, mAP and mINP of queries against a gallery; gathers all samples",
       "output: features, target: identity, camera, and 1 for a query or 0 for an entry of the gallery",
       {keys::choice("distance", "cosine", "Distance between features", {"cosine", "euclidean"}),
        keys::boolean("rerank", "false", "Re-rank by k-reciprocal neighbors (k1 20, k2 6, lambda 0.3)")},
       reidentification_meter},
      {"field",
       "RMSE over all samples, mean absolute, largest and mean error of each channel",
       kFields,
       {area_key("area")},
       {},
       field_meter},
      {"persistence",
       "RMSE of each channel if it stayed as it is in the newest input; evaluations with eval.rollout have the values",
       std::string(kFields) + "; the batch value persistence has the sizes of the targets",
       {area_key("area")},
       {},
       persistence_meter},
      {"well",
       "Errors of The Well's benchmark, averaged over samples and channels: NRMSE, VRMSE and others",
       kFields,
       {},
       {},
       well_meter},
      {"spectral",
       "Squared error of The Well's benchmark in three bands of wave numbers",
       kWholeFields,
       {},
       {},
       spectral_meter},
      {"pdebench",
       "Errors of PDEBench: RMSE, NRMSE, conserved sum, maximum, boundary and three bands of wave numbers",
       kWholeFields,
       {},
       {},
       pdebench_meter},
      {"acc",
       "Anomaly correlation of each channel: that of differences to a climatology, averaged over samples",
       std::string(kFields) + "; the batch value climatology has the sizes of the targets, or 1",
       {area_key("area"), keys::boolean("centered", "false", "Subtract the mean over space first"),
        keys::text("climatology", "climatology", "Name of the batch value with the climatology")},
       {},
       acc_meter},
  };
  return rows;
}

}  // namespace lockstep::metrics
