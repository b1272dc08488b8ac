// SPDX-License-Identifier: BSD-3-Clause
// Meters that count each sample into integers.
#include <lockstep/core/error.hpp>

#include "metrics/meter_rows.hpp"
#include "metrics/numbers/calibration.hpp"
#include "metrics/numbers/confusion.hpp"
#include "metrics/numbers/likelihood.hpp"
#include "metrics/numbers/multilabel.hpp"
#include "metrics/numbers/precision_recall.hpp"
#include "metrics/numbers/probability.hpp"
#include "metrics/numbers/regression.hpp"
#include "metrics/numbers/top_k.hpp"

namespace lockstep::metrics {

namespace {

using Words = std::span<std::int64_t>;
using ConstWords = std::span<const std::int64_t>;

constexpr std::int64_t kMaxClasses = 4096;  // a matrix of 128 MiB

void require_matrix(std::int64_t classes) {
  if (classes >= 1 && classes <= kMaxClasses) return;
  throw ConfigError("a matrix of " + std::to_string(classes) + " by " + std::to_string(classes) +
                    " classes is too large: the maximum is " + std::to_string(kMaxClasses));
}

std::vector<double> doubles(const std::vector<std::int64_t>& counts) { return {counts.begin(), counts.end()}; }

/// A meter whose words are those of one `Sums`.
template <class Sums>
Meter meter_of(std::vector<Result> results, void (*add)(Sums&, const Samples&), Reading (*read)(const Sums&)) {
  return {.results = std::move(results),
          .words = Sums::kWords,
          .add =
              [add](const Samples& samples, Words words) {
                Sums sums(words);
                add(sums, samples);
                sums.store(words);
              },
          .read = [read](ConstWords words) { return read(Sums(words)); }};
}

std::vector<RegressionErrors> errors_of(ConstWords words) {
  std::vector<RegressionErrors> errors;
  for (; !words.empty(); words = words.subspan(RegressionErrors::kWords)) {
    errors.emplace_back(words.first(RegressionErrors::kWords));
  }
  return errors;
}

double mean_over(const std::vector<RegressionErrors>& errors, double (RegressionErrors::*value)() const) {
  double sum = 0;
  for (const RegressionErrors& one : errors) sum += (one.*value)();
  return sum / static_cast<double>(errors.size());
}

Reading read_regression(ConstWords words) {
  const std::vector<RegressionErrors> errors = errors_of(words);
  using E = RegressionErrors;
  Reading reading;
  for (const auto value : {&E::mse, &E::rmse, &E::mae, &E::mape, &E::r2, &E::explained_variance, &E::pearson}) {
    reading.numbers.push_back(mean_over(errors, value));
  }
  return reading;
}

}  // namespace

Meter top_k_meter(const Section& options, std::int64_t classes) {
  const std::int64_t k = options.integer("k");
  if (k > classes) {
    throw ConfigError("k=" + std::to_string(k) + " of " + std::to_string(classes) + " classes: k must not be larger");
  }
  const std::string name = "top_" + std::to_string(k);
  return {.results = {{name + "_accuracy"}, {name + "_precision"}, {name + "_recall"}},
          .words = 4,
          .add =
              [k](const Samples& samples, Words words) {
                const TopKCounts counts = top_k_counts(samples, k);
                words[0] += counts.samples;
                words[1] += counts.found;
                words[2] += counts.hits;
                words[3] += counts.positives;
              },
          .read =
              [k](ConstWords words) {
                const TopKCounts counts{words[0], words[1], words[2], words[3]};
                return Reading{{counts.accuracy(), counts.precision(k), counts.recall()}};
              }};
}

Meter confusion_meter(const Section& options, std::int64_t classes) {
  require_matrix(classes);
  const double beta = options.real("beta");
  const Averaging averaging = averaging_of(options.text("average"));
  return {.results = {{"precision"},
                      {"recall"},
                      {beta == 1 ? "f1" : "f_beta"},
                      {"balanced_accuracy"},
                      {"cohen_kappa"},
                      {"matthews"}},
          .words = static_cast<std::size_t>(classes * classes),
          .add = [classes, ignored = options.integer("ignored")](
                     const Samples& samples, Words words) { count_confusion(samples, classes, ignored, words); },
          .read =
              [=](ConstWords words) {
                const Confusion confusion(words, classes);
                const PrecisionRecall mean = precision_recall(class_counts(confusion), averaging, beta);
                return Reading{{mean.precision, mean.recall, mean.f_score, balanced_accuracy(confusion),
                                cohen_kappa(confusion), matthews(confusion)},
                               {{.name = "confusion",
                                 .columns = static_cast<std::size_t>(classes),
                                 .values = doubles(confusion.counts())}}};
              }};
}

Meter overlap_meter(const Section& options, std::int64_t classes) {
  require_matrix(classes);
  return {.results = {{"miou"}, {"macc"}, {"mdice"}, {"aacc"}},
          .words = static_cast<std::size_t>(classes * classes),
          .add = [classes, ignored = options.integer("ignored")](
                     const Samples& samples, Words words) { count_confusion(samples, classes, ignored, words); },
          .read =
              [classes](ConstWords words) {
                const Overlap result = overlap(Confusion(words, classes));
                return Reading{{result.miou, result.macc, result.mdice, result.aacc},
                               {row_of("iou", result.iou), row_of("acc", result.acc), row_of("dice", result.dice)}};
              }};
}

Meter perplexity_meter(const Section& options, std::int64_t /*classes*/) {
  return {.results = {{"cross_entropy", false}, {"perplexity", false}, {"bits_per_token", false}},
          .words = Likelihood::kWords,
          .add =
              [smoothing = options.real("smoothing"), ignored = options.integer("ignored")](const Samples& samples,
                                                                                            Words words) {
                Likelihood likelihood(words);
                likelihood.add(samples, smoothing, ignored);
                likelihood.store(words);
              },
          .read =
              [](ConstWords words) {
                const Likelihood result(words);
                return Reading{{result.cross_entropy(), result.perplexity(), result.bits_per_token()}};
              }};
}

Meter calibration_meter(const Section& options, std::int64_t /*classes*/) {
  const std::int64_t bins = options.integer("bins");
  return {.results = {{"expected_calibration_error", false}},
          .words = Calibration::words_of(bins),
          .add =
              [bins](const Samples& samples, Words words) {
                Calibration calibration(words, bins);
                calibration.add(samples);
                calibration.store(words);
              },
          .read = [bins](ConstWords words) { return Reading{{Calibration(words, bins).expected_error()}}; }};
}

Meter multilabel_meter(const Section& options, std::int64_t classes) {
  const std::string& average = options.text("average");
  return {
      .results = {{"label_precision"}, {"label_recall"}, {"label_f1"}, {"subset_accuracy"}, {"hamming_loss", false}},
      .words = Multilabel::words_of(classes),
      .add =
          [classes, threshold = options.real("threshold")](const Samples& samples, Words words) {
            Multilabel labels(words, classes);
            labels.add(samples, threshold);
            labels.store(words);
          },
      .read =
          [classes, average](ConstWords words) {
            const Multilabel result(words, classes);
            const PrecisionRecall mean = average == "samples"
                                             ? result.over_samples()
                                             : precision_recall(result.classes(), averaging_of(average));
            return Reading{
                {mean.precision, mean.recall, mean.f_score, result.subset_accuracy(), result.hamming_loss()}};
          }};
}

Meter probability_meter(const Section& /*options*/, std::int64_t /*classes*/) {
  return meter_of<ProbabilityScores>(
      {{"brier_score", false}, {"log_loss", false}},
      [](ProbabilityScores& sums, const Samples& samples) { sums.add(samples); },
      [](const ProbabilityScores& sums) {
        return Reading{{sums.brier(), sums.log_loss()}};
      });
}

Meter regression_meter(const Section& /*options*/, std::int64_t classes) {
  return {.results = {{"mse", false},
                      {"rmse", false},
                      {"mae", false},
                      {"mape", false},
                      {"r2"},
                      {"explained_variance"},
                      {"pearson"}},
          .words = static_cast<std::size_t>(classes) * RegressionErrors::kWords,
          .add =
              [](const Samples& samples, Words words) {
                std::vector<RegressionErrors> errors = errors_of(words);
                add_errors(samples, errors);
                for (const RegressionErrors& one : errors) {
                  one.store(words.first(RegressionErrors::kWords));
                  words = words.subspan(RegressionErrors::kWords);
                }
              },
          .read = read_regression};
}

}  // namespace lockstep::metrics
