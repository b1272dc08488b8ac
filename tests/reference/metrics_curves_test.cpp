// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <limits>

#include "metrics.hpp"
#include "metrics/numbers/classification.hpp"
#include "metrics/numbers/curves.hpp"
#include "metrics/numbers/probability.hpp"
#include "metrics/numbers/reidentification.hpp"

namespace lockstep::testing::reference {

using metrics::Matrix;
using metrics::Samples;

namespace {

// "relative 1e-12 in float64 from the given float32 scores"
constexpr Tolerance kDouble = {.relative = 1e-12};

std::vector<double> list_of(const Json& list) {
  std::vector<double> values;
  for (const Json& value : list) values.push_back(value.is_null() ? number("nan") : number(value));
  return values;
}

Matrix matrix_of(const Json& tensor) {
  const StoredNumbers stored = numbers(tensor);
  return {.values = stored.data, .columns = static_cast<std::size_t>(stored.shape.at(1))};
}

std::vector<metrics::Sighting> sightings_of(const Json& identities, const Json& cameras) {
  const std::vector<double> who = numbers(identities).data;
  const std::vector<double> where = numbers(cameras).data;
  std::vector<metrics::Sighting> sightings;
  for (std::size_t i = 0; i < who.size(); ++i) {
    sightings.push_back({static_cast<std::int64_t>(who[i]), static_cast<std::int64_t>(where[i])});
  }
  return sightings;
}

// The files also have points of curves, partial areas and expanded queries, which Lockstep does not compute.
void run_binary(const Json& one) {
  require_known_fields(one, {"name", "scores", "labels", "auroc", "average_precision", "roc_curve",
                             "precision_recall_curve", "max_fpr_0.3_partial_auc", "brier", "log_loss"});
  const Samples samples = samples_from(one.at("scores"), one.at("labels"));
  const metrics::ThresholdCurve curve = metrics::threshold_curve(samples.outputs, samples.targets);
  expect_number(one.at("auroc"), metrics::auroc(curve), kDouble, "auroc");
  expect_number(one.at("average_precision"), metrics::average_precision(curve), kDouble, "average precision");
  metrics::ProbabilityScores scores;
  scores.add(samples);
  expect_number(one.at("brier"), scores.brier(), kDouble, "brier");
  expect_number(one.at("log_loss"), scores.log_loss(), kDouble, "log loss");
}

void expect_ratios(const Json& expected, const metrics::PrecisionRecall& actual, const std::string& what) {
  expect_number(expected.at("precision"), actual.precision, kDouble, what + " precision");
  expect_number(expected.at("recall"), actual.recall, kDouble, what + " recall");
  expect_number(expected.at("f1"), actual.f_score, kDouble, what + " f1");
}

struct Found {
  const Matrix& distances;
  std::vector<metrics::Sighting> queries;
  std::vector<metrics::Sighting> gallery;
};

void expect_ranking(const Json& expected, const Found& found, std::size_t max_rank) {
  require_known_fields(expected, {"distances", "cmc", "ap_of_each_valid_query", "inp_of_each_valid_query", "mAP",
                                  "mINP", "rank1", "metric", "tpr_at_fpr"});
  constexpr Tolerance kRanking = {.relative = 1e-6};
  expect_close(found.distances.values, numbers(expected.at("distances")).data, {.absolute = 1e-5, .relative = 1e-5},
               "distances");
  const auto result = metrics::reidentification(found.distances, found.queries, found.gallery, max_rank);
  expect_close(result.cmc, list_of(expected.at("cmc")), kRanking, "cmc");
  expect_close(result.average_precisions, list_of(expected.at("ap_of_each_valid_query")), kRanking, "ap");
  expect_close(result.inverse_negative_penalties, list_of(expected.at("inp_of_each_valid_query")), kRanking, "inp");
  expect_number(expected.at("mAP"), result.map, kRanking, "mAP");
  expect_number(expected.at("mINP"), result.minp, kRanking, "mINP");
  expect_number(expected.at("rank1"), result.cmc.front(), kRanking, "rank 1");
  expect_number(expected.at("metric"), (result.cmc.front() + result.map) / 2, kRanking, "metric");
}

}  // namespace

bool has_metrics() { return std::filesystem::is_directory(root() / "metrics"); }

Samples samples_from(const Json& outputs, const Json& targets) {
  const StoredNumbers output = numbers(outputs);
  const StoredNumbers target = numbers(targets);
  const bool is_single = output.shape.size() == 1;
  Samples samples{.indices = {}, .outputs = output.data, .targets = target.data};
  samples.output_columns = is_single ? 1 : static_cast<std::size_t>(output.shape.back());
  const std::size_t count = output.data.size() / samples.output_columns;
  samples.target_columns = target.data.size() / count;
  for (std::size_t i = 0; i < count; ++i) samples.indices.push_back(static_cast<std::int64_t>(i));
  return samples;
}

Samples samples_from_rows(const Json& outputs, const Json& targets) {
  Samples samples;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    samples.indices.push_back(static_cast<std::int64_t>(i));
    for (const double value : outputs[i]) samples.outputs.push_back(value);
    const Json target = targets[i].is_array() ? targets[i] : Json::array({targets[i]});
    for (const double value : target) samples.targets.push_back(value);
    samples.output_columns = outputs[i].size();
    samples.target_columns = target.size();
  }
  return samples;
}

void expect_number(const Json& expected, double actual, const Tolerance& tolerance, const std::string& what) {
  const double stored = expected.is_null() ? std::numeric_limits<double>::quiet_NaN() : number(expected);
  EXPECT_TRUE(is_close(actual, stored, tolerance))
      << what << ": " << Json(actual) << " instead of " << expected << ", off by " << actual - stored;
}

void run_multilabel(const Json& one) {
  require_known_fields(
      one, {"name", "scores", "targets", "ap_per_class", "mAP_over_classes_with_positives", "interpolated_ap_per_class",
            "interpolated_mAP", "thresholded_0.5", "subset_accuracy", "hamming_loss", "with_ignored"});
  Samples samples = samples_from(one.at("scores"), one.at("targets"));
  const auto curves = metrics::class_curves(samples);
  const metrics::MeanOfClasses plain = metrics::mean_average_precision(curves);
  const metrics::MeanOfClasses interpolated = metrics::mean_interpolated_average_precision(curves);
  expect_close(plain.classes, list_of(one.at("ap_per_class")), kDouble, "ap");
  expect_number(one.at("mAP_over_classes_with_positives"), plain.mean, kDouble, "mAP");
  expect_close(interpolated.classes, list_of(one.at("interpolated_ap_per_class")), kDouble, "interpolated ap");
  expect_number(one.at("interpolated_mAP"), interpolated.mean, kDouble, "interpolated mAP");

  metrics::Multilabel labels(static_cast<std::int64_t>(samples.output_columns));
  labels.add(samples, 0.5);
  const Json& thresholded = one.at("thresholded_0.5");
  for (const char* const word : {"micro", "macro"}) {
    expect_ratios(thresholded.at(word), metrics::precision_recall(labels.classes(), metrics::averaging_of(word)), word);
  }
  expect_ratios(thresholded.at("samples"), labels.over_samples(), "samples");
  expect_number(one.at("subset_accuracy"), labels.subset_accuracy(), kDouble, "subset accuracy");
  expect_number(one.at("hamming_loss"), labels.hamming_loss(), kDouble, "hamming loss");

  for (const std::size_t row : one.at("with_ignored").at("ignored_rows_of_class_0")) {
    samples.targets[row * samples.target_columns] = -1;
  }
  expect_number(one.at("with_ignored").at("interpolated_ap_class_0"),
                metrics::interpolated_average_precision(metrics::class_curves(samples).front()), kDouble,
                "interpolated ap with ignored rows");
}

void run_reidentification(const Json& one) {
  require_known_fields(
      one, {"name", "query_features", "gallery_features", "query_pids", "gallery_pids", "query_camids",
            "gallery_camids", "max_rank", "euclidean", "cosine", "k_reciprocal_rerank", "average_query_expansion"});
  const Matrix queries = matrix_of(one.at("query_features"));
  const Matrix gallery = matrix_of(one.at("gallery_features"));
  const Matrix euclidean = metrics::squared_distances(queries, gallery);
  const Matrix cosine = metrics::cosine_distances(queries, gallery);
  const std::size_t max_rank = one.at("max_rank");
  Found found{.distances = euclidean,
              .queries = sightings_of(one.at("query_pids"), one.at("query_camids")),
              .gallery = sightings_of(one.at("gallery_pids"), one.at("gallery_camids"))};
  expect_ranking(one.at("euclidean"), found, max_rank);
  expect_ranking(one.at("cosine"), {cosine, found.queries, found.gallery}, max_rank);

  const Json& rerank = one.at("k_reciprocal_rerank");
  const Matrix reranked =
      metrics::rerank(cosine, metrics::cosine_distances(queries, queries), metrics::cosine_distances(gallery, gallery),
                      {.k1 = rerank.at("k1"), .k2 = rerank.at("k2"), .original = rerank.at("lambda")});
  expect_close(reranked.values, numbers(rerank.at("distances")).data, {.absolute = 1e-4}, "re-ranked distances");
}

namespace {

// Lists beside `cases`.
TEST(Reference, MetricsBinaryCurves) {
  if (!has_metrics()) GTEST_SKIP() << "no reference data for metrics in " << root();
  const Json file = load("metrics/roc_and_ap.json");
  ASSERT_FALSE(file.at("binary").empty());
  for (const Json& one : file.at("binary")) {
    SCOPED_TRACE(one.at("name").get<std::string>());
    run_binary(one);
  }
}

TEST(Reference, MetricsMulticlassAreas) {
  if (!has_metrics()) GTEST_SKIP() << "no reference data for metrics in " << root();
  const Json one = load("metrics/roc_and_ap.json").at("multiclass");
  require_known_fields(one, {"scores", "labels", "ovr_macro", "ovr_weighted", "ovo_macro"});
  const Samples samples = samples_from(one.at("scores"), one.at("labels"));
  const auto curves = metrics::class_curves(samples);
  expect_number(one.at("ovr_macro"), metrics::mean_auroc(curves, metrics::Averaging::macro), kDouble, "ovr");
  expect_number(one.at("ovr_weighted"), metrics::mean_auroc(curves, metrics::Averaging::weighted), kDouble, "weighted");
  expect_number(one.at("ovo_macro"), metrics::one_vs_one_auroc(samples), kDouble, "ovo");
}

TEST(Reference, MetricsSmallAveragePrecisions) {
  if (!has_metrics()) GTEST_SKIP() << "no reference data for metrics in " << root();
  const Json small = load("metrics/multilabel_map.json").at("small");
  ASSERT_FALSE(small.empty());
  for (const Json& one : small) {
    require_known_fields(one, {"targets", "scores", "interpolated_ap", "average_precision"});
    const auto curve = metrics::threshold_curve(list_of(one.at("scores")), list_of(one.at("targets")));
    expect_number(one.at("interpolated_ap"), metrics::interpolated_average_precision(curve), kDouble, "interpolated");
    expect_number(one.at("average_precision"), metrics::average_precision(curve), kDouble, "plain");
  }
}

}  // namespace
}  // namespace lockstep::testing::reference
