// SPDX-License-Identifier: BSD-3-Clause
// Meters that count each sample into integers.
#include <lockstep/core/error.hpp>

#include <utility>

#include "metrics/meter_rows.hpp"
#include "metrics/numbers/classification.hpp"
#include "metrics/numbers/probability.hpp"
#include "metrics/numbers/regression.hpp"

namespace lockstep::metrics {

namespace {

using Words = std::span<std::int64_t>;
using ConstWords = std::span<const std::int64_t>;

constexpr std::int64_t kMaxClasses = 4096;  // a matrix of 128 MiB

/// The errors of each output.
struct ErrorsOfOutputs {
  std::vector<RegressionErrors> outputs;

  template <class Visit>
  void visit_words(Visit& visit) {
    for (RegressionErrors& errors : outputs) errors.visit_words(visit);
  }
};

// The counts and sums of a meter as words. A class with a function `visit_words(visit)` calls `visit` for each of them,
// always in the same order.

/// Counts the words of what it visits.
class WordCounter {
 public:
  void operator()(std::int64_t&) { ++count_; }
  void operator()(ExactSum&) { count_ += ExactSum::kWords; }
  std::size_t count() const noexcept { return count_; }

 private:
  std::size_t count_ = 0;
};

/// Copies words to what it visits.
class WordReader {
 public:
  explicit WordReader(ConstWords words) : words_(words) {}
  void operator()(std::int64_t& count) { count = take(1).front(); }
  void operator()(ExactSum& sum) { sum = ExactSum(take(ExactSum::kWords)); }

 private:
  ConstWords take(std::size_t count) { return std::exchange(words_, words_.subspan(count)).first(count); }

  ConstWords words_;
};

/// Copies what it visits to words.
class WordWriter {
 public:
  explicit WordWriter(Words words) : words_(words) {}
  void operator()(std::int64_t& count) { take(1).front() = count; }
  void operator()(ExactSum& sum) { sum.store(take(ExactSum::kWords)); }

 private:
  Words take(std::size_t count) { return std::exchange(words_, words_.subspan(count)).first(count); }

  Words words_;
};

/// A meter whose words are those of one `Sums`, of which `empty` has counted nothing.
template <class Sums>
Meter meter_of(std::vector<Result> results, Sums empty, std::function<void(Sums&, const Samples&)> add,
               std::function<Reading(const Sums&)> read) {
  WordCounter counter;
  empty.visit_words(counter);
  const auto loaded = [empty](ConstWords words) {
    Sums sums = empty;
    WordReader reader(words);
    sums.visit_words(reader);
    return sums;
  };
  return {.results = std::move(results),
          .words = counter.count(),
          .add =
              [loaded, add = std::move(add)](const Samples& samples, Words words) {
                Sums sums = loaded(words);
                add(sums, samples);
                WordWriter writer(words);
                sums.visit_words(writer);
              },
          .read = [loaded, read = std::move(read)](ConstWords words) { return read(loaded(words)); }};
}

/// A meter that counts a confusion matrix.
Meter matrix_meter(std::vector<Result> results, const Section& options, std::int64_t classes,
                   std::function<Reading(const Confusion&)> read) {
  if (classes < 1 || classes > kMaxClasses) {
    throw ConfigError("a matrix of " + std::to_string(classes) + " by " + std::to_string(classes) +
                      " classes is too large: the maximum is " + std::to_string(kMaxClasses));
  }
  return {.results = std::move(results),
          .words = static_cast<std::size_t>(classes * classes),
          .add = [classes, ignored = options.integer("ignored")](
                     const Samples& samples, Words words) { count_confusion(samples, classes, ignored, words); },
          .read = [classes, read = std::move(read)](ConstWords words) { return read(Confusion(words, classes)); }};
}

double mean_over(const std::vector<RegressionErrors>& errors, double (RegressionErrors::*value)() const) {
  double sum = 0;
  for (const RegressionErrors& one : errors) sum += (one.*value)();
  return sum / static_cast<double>(errors.size());
}

Reading read_regression(const ErrorsOfOutputs& errors) {
  using E = RegressionErrors;
  Reading reading;
  for (const auto value : {&E::mse, &E::rmse, &E::mae, &E::mape, &E::r2, &E::explained_variance, &E::pearson}) {
    reading.numbers.push_back(mean_over(errors.outputs, value));
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
  const double beta = options.real("beta");
  const Averaging averaging = averaging_of(options.text("average"));
  return matrix_meter(
      {{"precision"}, {"recall"}, {beta == 1 ? "f1" : "f_beta"}, {"balanced_accuracy"}, {"cohen_kappa"}, {"matthews"}},
      options, classes, [beta, averaging](const Confusion& confusion) {
        const PrecisionRecall mean = precision_recall(class_counts(confusion), averaging, beta);
        return Reading{{mean.precision, mean.recall, mean.f_score, balanced_accuracy(confusion), cohen_kappa(confusion),
                        matthews(confusion)},
                       {{.name = "confusion",
                         .columns = static_cast<std::size_t>(confusion.classes()),
                         .values = {confusion.counts().begin(), confusion.counts().end()}}}};
      });
}

Meter overlap_meter(const Section& options, std::int64_t classes) {
  return matrix_meter({{"miou"}, {"macc"}, {"mdice"}, {"aacc"}}, options, classes, [](const Confusion& confusion) {
    const Overlap result = overlap(confusion);
    return Reading{{result.miou, result.macc, result.mdice, result.aacc},
                   {row_of("iou", result.iou), row_of("acc", result.acc), row_of("dice", result.dice)}};
  });
}

Meter perplexity_meter(const Section& options, std::int64_t /*classes*/) {
  return meter_of<Likelihood>(
      {{"cross_entropy", false}, {"perplexity", false}, {"bits_per_token", false}}, {},
      [smoothing = options.real("smoothing"), ignored = options.integer("ignored")](
          Likelihood& likelihood, const Samples& samples) { likelihood.add(samples, smoothing, ignored); },
      [](const Likelihood& result) {
        return Reading{{result.cross_entropy(), result.perplexity(), result.bits_per_token()}};
      });
}

Meter calibration_meter(const Section& options, std::int64_t /*classes*/) {
  return meter_of<Calibration>(
      {{"expected_calibration_error", false}}, Calibration(options.integer("bins")),
      [](Calibration& calibration, const Samples& samples) { calibration.add(samples); },
      [](const Calibration& calibration) { return Reading{{calibration.expected_error()}}; });
}

Meter multilabel_meter(const Section& options, std::int64_t classes) {
  return meter_of<Multilabel>(
      {{"label_precision"}, {"label_recall"}, {"label_f1"}, {"subset_accuracy"}, {"hamming_loss", false}},
      Multilabel(classes),
      [threshold = options.real("threshold")](Multilabel& labels, const Samples& samples) {
        labels.add(samples, threshold);
      },
      [average = options.text("average")](const Multilabel& result) {
        const PrecisionRecall mean =
            average == "samples" ? result.over_samples() : precision_recall(result.classes(), averaging_of(average));
        return Reading{{mean.precision, mean.recall, mean.f_score, result.subset_accuracy(), result.hamming_loss()}};
      });
}

Meter probability_meter(const Section& /*options*/, std::int64_t /*classes*/) {
  return meter_of<ProbabilityScores>(
      {{"brier_score", false}, {"log_loss", false}}, {},
      [](ProbabilityScores& sums, const Samples& samples) { sums.add(samples); },
      [](const ProbabilityScores& sums) {
        return Reading{{sums.brier(), sums.log_loss()}};
      });
}

Meter regression_meter(const Section& /*options*/, std::int64_t classes) {
  return meter_of<ErrorsOfOutputs>(
      {{"mse", false}, {"rmse", false}, {"mae", false}, {"mape", false}, {"r2"}, {"explained_variance"}, {"pearson"}},
      {.outputs = std::vector<RegressionErrors>(static_cast<std::size_t>(classes))},
      [](ErrorsOfOutputs& errors, const Samples& samples) { add_errors(samples, errors.outputs); }, read_regression);
}

}  // namespace lockstep::metrics
