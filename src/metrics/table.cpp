// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/keys.hpp>
#include <lockstep/metrics/meter.hpp>

#include "metrics/meter_rows.hpp"

namespace lockstep::metrics {

namespace {

constexpr const char* kLogits = "output: C unnormalised scores, target: one class of C, or -100: not counted";
constexpr const char* kOutputs = "output and target: as many numbers each";

constexpr double kLargest = 1e9;  // of whole numbers

KeySpec averaging(const std::vector<std::string>& choices = {"macro", "weighted", "micro"}) {
  return keys::choice("average", "macro", "how classes come together", choices);
}

KeySpec ignored() {
  return keys::integer("ignored", "-100", "another target that is not counted", -kLargest, kLargest);
}

}  // namespace

const std::vector<MeterRow>& builtin_meters() {
  static const std::vector<MeterRow> rows = {
      {"top_k",
       "accuracy, precision and recall of the k highest scores",
       "output: C scores, target: one class of C, -100: not counted, or 0 or 1 for each class",
       {keys::integer("k", "5", "guesses that a sample gets", 1, kLargest)},
       top_k_meter},
      {"confusion",
       "confusion matrix, precision, recall, F score, balanced accuracy, Cohen's kappa, Matthews' coefficient",
       kLogits,
       {averaging(), keys::real("beta", "1", "how much more recall weighs than precision in the F score", 1e-3, 1e3),
        ignored()},
       confusion_meter},
      {"overlap",
       "intersection over union, accuracy and Dice's coefficient, by class and as means",
       kLogits,
       {ignored()},
       overlap_meter},
      {"perplexity",
       "cross-entropy in nats and bits, and its exponential",
       kLogits,
       {keys::real("smoothing", "0", "weight spread over all classes", 0, 1), ignored()},
       perplexity_meter},
      {"calibration",
       "how far confidence and accuracy are apart",
       kLogits,
       {keys::integer("bins", "15", "of equal width in the confidence", 1, 10000)},
       calibration_meter},
      {"multilabel",
       "precision, recall, F1, subset accuracy and Hamming loss of labels that are true by themselves",
       "output: C scores, target: 0, 1 or -1 (not counted) for each",
       {averaging({"macro", "weighted", "micro", "samples"}),
        keys::real("threshold", "0.5", "the least score of what is predicted", -1e30, 1e30)},
       multilabel_meter},
      {"probability",
       "Brier score and logarithmic loss",
       "output: probabilities in [0, 1], target: 0, 1 or -1 (not counted) for each",
       {},
       probability_meter},
      {"regression",
       "mean errors, determination and correlation, as means over outputs",
       kOutputs,
       {},
       regression_meter},
      {"regression_order",
       "median and largest error and rank correlation, as means over outputs; gathers all samples",
       kOutputs,
       {},
       regression_order_meter},
      {"auroc",
       "area under the ROC curve, one class against the rest and against each other; gathers all samples",
       "output: C scores, target: one class of C, -100: not counted, or 0, 1 or -1 (not counted) for each output",
       {},
       auroc_meter},
      {"average_precision",
       "area under the precision-recall curve, mean over classes; gathers all samples",
       "output: C scores, target: one class of C, -100: not counted, or 0, 1 or -1 (not counted) for each output",
       {},
       average_precision_meter},
      {"reidentification",
       "CMC ranks, mAP and mINP of queries in a gallery; gathers all samples",
       "output: features, target: identity, camera, and 1 for a query or 0 for an entry of the gallery",
       {keys::choice("distance", "cosine", "between features", {"cosine", "euclidean"}),
        keys::boolean("rerank", "false", "rank by k-reciprocal neighbours (k1 20, k2 6, lambda 0.3)")},
       reidentification_meter},
  };
  return rows;
}

}  // namespace lockstep::metrics
