// SPDX-License-Identifier: BSD-3-Clause
// Classification, likelihood, segmentation and regression; curves, labels and re-identification:
// metrics_curves_test.cpp.
#include "metrics.hpp"

#include <gtest/gtest.h>

#include "metrics/numbers/classification.hpp"
#include "metrics/numbers/probability.hpp"
#include "metrics/numbers/regression.hpp"

namespace lockstep::testing::reference {
namespace metrics_test {

using metrics::Samples;

// "relative 1e-12 in float64 from the given float32 scores"
constexpr Tolerance kDouble = {.relative = 1e-12};

void expect_ratios(const Json& expected, const metrics::PrecisionRecall& actual, const std::string& what) {
  expect_number(expected.at("precision"), actual.precision, kDouble, what + " precision");
  expect_number(expected.at("recall"), actual.recall, kDouble, what + " recall");
  expect_number(expected.at("f1"), actual.f_score, kDouble, what + " f1");
}

metrics::Confusion confusion_of(const Samples& samples, const Json& expected, std::int64_t ignored) {
  const std::int64_t classes = expected.at("num_classes");
  std::vector<std::int64_t> counts(static_cast<std::size_t>(classes * classes));
  metrics::count_confusion(samples, classes, ignored, counts);
  std::vector<std::int64_t> stored;
  for (const Json& row : expected.at("confusion_matrix_rows_are_targets")) {
    for (const std::int64_t count : row) stored.push_back(count);
  }
  EXPECT_EQ(counts, stored);
  return {counts, classes};
}

void expect_likelihood(const Json& one, const Samples& samples) {
  metrics::Likelihood plain;
  plain.add(samples);
  expect_number(one.at("cross_entropy_mean"), plain.cross_entropy(), kDouble, "cross entropy");
  metrics::Likelihood smoothed;
  smoothed.add(samples, 0.1);
  expect_number(one.at("cross_entropy_label_smoothing_0.1"), smoothed.cross_entropy(), kDouble, "smoothed");
  metrics::Calibration calibration(15);
  calibration.add(samples);
  expect_number(one.at("expected_calibration_error_15_bins"), calibration.expected_error(), {.absolute = 1e-6},
                "calibration error");
}

void run_classification(const Json& one) {
  require_known_fields(one, {"name", "num_classes", "scores", "targets", "predictions", "topk_accuracy",
                             "confusion_matrix_rows_are_targets", "micro", "macro", "weighted", "per_class", "f2_macro",
                             "balanced_accuracy_over_present_classes", "cohen_kappa", "matthews", "cross_entropy_mean",
                             "cross_entropy_label_smoothing_0.1", "expected_calibration_error_15_bins"});
  const Samples samples = samples_from(one.at("scores"), one.at("targets"));
  std::vector<double> predictions;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    predictions.push_back(static_cast<double>(metrics::best_class(samples.output(i))));
  }
  EXPECT_EQ(predictions, numbers(one.at("predictions")).data);
  for (const auto& [k, accuracy] : one.at("topk_accuracy").items()) {
    expect_number(accuracy, metrics::top_k_counts(samples, std::stoll(k)).accuracy(), kDouble, "top " + k);
  }
  const metrics::Confusion confusion = confusion_of(samples, one, metrics::kIgnored);
  const auto classes = metrics::class_counts(confusion);
  for (const char* const word : {"micro", "macro", "weighted"}) {
    expect_ratios(one.at(word), metrics::precision_recall(classes, metrics::averaging_of(word)), word);
  }
  const Json& per_class = one.at("per_class");
  for (std::size_t c = 0; c < classes.size(); ++c) {
    const metrics::PrecisionRecall ratios = metrics::precision_recall(classes[c]);
    const std::string what = "class " + std::to_string(c);
    expect_number(per_class.at("precision")[c], ratios.precision, kDouble, what + " precision");
    expect_number(per_class.at("recall")[c], ratios.recall, kDouble, what + " recall");
    expect_number(per_class.at("f1")[c], ratios.f_score, kDouble, what + " f1");
    EXPECT_EQ(classes[c].support, per_class.at("support")[c].get<std::int64_t>()) << what;
  }
  expect_number(one.at("f2_macro"), metrics::precision_recall(classes, metrics::Averaging::macro, 2).f_score, kDouble,
                "f2");
  expect_number(one.at("balanced_accuracy_over_present_classes"), metrics::balanced_accuracy(confusion), kDouble,
                "balanced accuracy");
  expect_number(one.at("cohen_kappa"), metrics::cohen_kappa(confusion), kDouble, "kappa");
  expect_number(one.at("matthews"), metrics::matthews(confusion), kDouble, "Matthews");
  expect_likelihood(one, samples);
}

void run_segmentation(const Json& one) {
  require_known_fields(
      one, {"name", "num_classes", "ignore_index", "target", "prediction", "confusion_matrix_rows_are_targets",
            "iou_per_class", "acc_per_class", "dice_per_class", "mIoU", "mAcc", "mDice", "aAcc"});
  const Json& ignored = one.at("ignore_index");
  Samples samples;
  samples.outputs = numbers(one.at("prediction")).data;
  samples.targets = numbers(one.at("target")).data;
  samples.indices.resize(samples.targets.size());
  samples.output_columns = samples.target_columns = 1;
  const metrics::Overlap result =
      metrics::overlap(confusion_of(samples, one, ignored.is_null() ? metrics::kIgnored : ignored.get<std::int64_t>()));
  constexpr Tolerance kRatio = {.relative = 1e-15};
  for (std::size_t c = 0; c < result.iou.size(); ++c) {
    expect_number(one.at("iou_per_class")[c], result.iou[c], kRatio, "iou of " + std::to_string(c));
    expect_number(one.at("acc_per_class")[c], result.acc[c], kRatio, "accuracy of " + std::to_string(c));
    expect_number(one.at("dice_per_class")[c], result.dice[c], kRatio, "dice of " + std::to_string(c));
  }
  expect_number(one.at("mIoU"), result.miou, kRatio, "mIoU");
  expect_number(one.at("mAcc"), result.macc, kRatio, "mAcc");
  expect_number(one.at("mDice"), result.mdice, kRatio, "mDice");
  expect_number(one.at("aAcc"), result.aacc, kRatio, "aAcc");
}

void run_regression(const Json& one) {
  require_known_fields(
      one, {"name", "prediction", "target", "mse", "rmse", "mae", "median_ae", "max_error", "r2", "explained_variance",
            "mape", "pearson", "spearman", "r2_uniform_average", "r2_per_output", "note"});
  const auto columns_of = [](const Json& tensor) {
    if (tensor.is_array()) return StoredNumbers{.dtype = "float64", .shape = {3}, .data = tensor};
    return numbers(tensor);
  };
  const StoredNumbers prediction = columns_of(one.at("prediction"));
  const StoredNumbers target = columns_of(one.at("target"));
  const std::size_t outputs = prediction.shape.size() < 2 ? 1 : static_cast<std::size_t>(prediction.shape[1]);
  std::vector<metrics::RegressionErrors> errors(outputs);
  for (std::size_t i = 0; i < target.data.size(); ++i) errors[i % outputs].add(prediction.data[i], target.data[i]);

  const bool has_large_mean = one.at("name") == "large_mean";
  const Tolerance error = {.relative = 1e-10};
  const Tolerance variance = {.relative = has_large_mean ? 1e-8 : 1e-10};
  const Tolerance correlation = {.relative = has_large_mean ? 1e-7 : 1e-10};
  using E = metrics::RegressionErrors;
  const auto expect = [&](const char* name, double (E::*value)() const, const Tolerance& tolerance) {
    if (!one.contains(name)) return;
    double sum = 0;
    for (const E& output : errors) sum += (output.*value)();
    expect_number(one.at(name), sum / static_cast<double>(outputs), tolerance, name);
  };
  expect("mse", &E::mse, error);
  expect("rmse", &E::rmse, error);
  expect("mae", &E::mae, error);
  expect("mape", &E::mape, error);
  expect("r2", &E::r2, variance);
  expect("r2_uniform_average", &E::r2, variance);
  expect("explained_variance", &E::explained_variance, variance);
  expect("pearson", &E::pearson, correlation);
  for (std::size_t i = 0; one.contains("r2_per_output") && i < outputs; ++i) {
    expect_number(one.at("r2_per_output")[i], errors[i].r2(), variance, "r2 of " + std::to_string(i));
  }
  const auto expect_order = [&](const char* name, auto value, const Tolerance& tolerance) {
    if (one.contains(name)) expect_number(one.at(name), value(prediction.data, target.data), tolerance, name);
  };
  expect_order("median_ae", metrics::median_absolute_error, error);
  expect_order("max_error", metrics::max_error, error);
  // The stored ones are float32 numbers, up to 1.7e-7 from 1 - 6 sum d^2 / (n^3 - n), which is what they stand for;
  // unit tests hold ours to that.
  expect_order("spearman", metrics::spearman, {.absolute = 2e-7});
}

void run_classy_meter(const Json& one) {
  require_known_fields(one, {"meter", "name", "topk", "batches", "value_after_each_update"});
  const std::string meter = one.at("meter");
  const auto value = [&meter](const metrics::TopKCounts& counts, std::int64_t k) {
    if (meter == "AccuracyMeter") return counts.accuracy();
    if (meter == "PrecisionAtKMeter") return counts.precision(k);
    if (meter == "RecallAtKMeter") return counts.recall();
    throw std::runtime_error("no test knows the meter " + meter);
  };
  for (const std::int64_t k : one.at("topk")) {
    metrics::TopKCounts total;
    for (std::size_t i = 0; i < one.at("batches").size(); ++i) {
      const Json& batch = one.at("batches")[i];
      const metrics::TopKCounts counts =
          metrics::top_k_counts(samples_from_rows(batch.at("output"), batch.at("target")), k);
      total = {total.samples + counts.samples, total.found + counts.found, total.hits + counts.hits,
               total.positives + counts.positives};
      const std::string name = "top_" + std::to_string(k);
      expect_number(one.at("value_after_each_update")[i].at(name), value(total, k), {.relative = 1e-6}, name);
    }
  }
}

TEST(Reference, Metrics) {
  run_topic("metrics", {{.file = "classification.json", .run = run_classification},
                        {.file = "classy_meters.json", .run = run_classy_meter},
                        {.file = "multilabel_map.json", .extra_fields = {"small"}, .run = run_multilabel},
                        {.file = "perplexity.json",
                         .extra_fields = {"logits", "targets", "perplexity", "bits_per_token", "targets_with_ignored",
                                          "ignore_index", "perplexity_with_ignored", "counted_tokens"}},
                        {.file = "regression.json", .run = run_regression},
                        {.file = "reidentification.json", .run = run_reidentification},
                        {.file = "roc_and_ap.json", .extra_fields = {"binary", "multiclass"}},
                        {.file = "segmentation.json", .run = run_segmentation}});
}

// It has one case, whose fields stand at the top.
TEST(Reference, MetricsPerplexity) {
  if (!has_metrics()) GTEST_SKIP() << "no reference data for metrics in " << root();
  const Json file = load("metrics/perplexity.json");
  constexpr Tolerance kStated = {.relative = 1e-6};
  metrics::Likelihood all;
  all.add(samples_from(file.at("logits"), file.at("targets")));
  expect_number(file.at("perplexity"), all.perplexity(), kStated, "perplexity");
  expect_number(file.at("bits_per_token"), all.bits_per_token(), kStated, "bits");
  metrics::Likelihood some;
  some.add(samples_from(file.at("logits"), file.at("targets_with_ignored")), 0, file.at("ignore_index"));
  expect_number(file.at("perplexity_with_ignored"), some.perplexity(), kStated, "perplexity of counted tokens");
  EXPECT_EQ(some.count(), file.at("counted_tokens").get<std::int64_t>());
}

}  // namespace metrics_test
}  // namespace lockstep::testing::reference
