// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/metrics/meter.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace lockstep::metrics {

/// The confusion matrix: the number of samples of each class that were predicted as each class. Counts of parts can be
/// added.
class Confusion {
 public:
  /// @param counts  [C, C]: rows are targets, columns predictions
  Confusion(std::span<const std::int64_t> counts, std::int64_t classes);

  std::int64_t classes() const noexcept { return classes_; }
  std::int64_t at(std::int64_t target, std::int64_t prediction) const {
    return counts_[static_cast<std::size_t>(target * classes_ + prediction)];
  }
  const std::vector<std::int64_t>& counts() const noexcept { return counts_; }
  std::int64_t total() const noexcept { return total_; }
  std::int64_t correct() const noexcept { return correct_; }
  std::int64_t support(std::int64_t c) const { return support_[static_cast<std::size_t>(c)]; }      ///< targets
  std::int64_t predicted(std::int64_t c) const { return predicted_[static_cast<std::size_t>(c)]; }  ///< predictions

 private:
  std::int64_t classes_;
  std::vector<std::int64_t> counts_;
  std::vector<std::int64_t> support_;
  std::vector<std::int64_t> predicted_;
  std::int64_t total_ = 0;
  std::int64_t correct_ = 0;
};

/// Adds samples to the counts of a Confusion.
/// @param samples  outputs: C scores, of which the highest is the prediction, or one column with the predicted class;
///                 targets: one class
/// @param ignored  a target that is not counted, as kIgnored is not
/// @throws DataError  a class outside [0, C), or neither C outputs nor one
/// Not collective.
void count_confusion(const Samples& samples, std::int64_t classes, std::int64_t ignored,
                     std::span<std::int64_t> counts);

/// Mean of the recalls of the classes that have targets; 0 of nothing.
double balanced_accuracy(const Confusion& confusion);
/// Cohen's kappa, (p_o - p_e) / (1 - p_e): agreement beyond chance, at most 1. NaN of fewer than two samples, and where
/// chance alone agrees always.
double cohen_kappa(const Confusion& confusion);
/// Matthews' correlation coefficient in [-1, 1]; 0 where it is undefined.
/// Source: Gorodkin, Comparing two K-category assignments by a K-category correlation coefficient, equation 8.
double matthews(const Confusion& confusion);

/// Overlap of predictions and targets, by class and as means over the classes that have any. A class with neither
/// targets nor predictions is NaN; so is a mean over no class.
struct Overlap {
  std::vector<double> iou;   ///< intersection over union, tp / (tp + fp + fn)
  std::vector<double> acc;   ///< tp / (tp + fn); NaN without targets
  std::vector<double> dice;  ///< 2 tp / (2 tp + fp + fn)
  double miou = 0;
  double macc = 0;
  double mdice = 0;
  double aacc = 0;  ///< accuracy over all pixels; 0 if there are none
};
Overlap overlap(const Confusion& confusion);

/// The counts of the predictions of one class. Counts of parts can be added.
struct ClassCounts {
  std::int64_t true_positives = 0;
  std::int64_t predicted = 0;  ///< true and false positives
  std::int64_t support = 0;    ///< true positives and false negatives
};

/// Each in [0, 1]; a ratio of 0 to 0 is 0.
struct PrecisionRecall {
  double precision = 0;  ///< true positives / predicted
  double recall = 0;     ///< true positives / support
  double f_score = 0;    ///< (1 + beta^2) precision recall / (beta^2 precision + recall)
};

/// @param beta  how much more recall weighs than precision; 1 gives F1
PrecisionRecall precision_recall(const ClassCounts& counts, double beta = 1);

/// The averaging over classes.
enum class Averaging {
  macro,     ///< mean of the classes' values: all classes weigh the same
  weighted,  ///< mean by support; 0 without any
  micro,     ///< the values of the summed counts: all samples weigh the same
};
/// The words macro, weighted, micro.
/// @throws std::invalid_argument  another word
Averaging averaging_of(std::string_view word);

PrecisionRecall precision_recall(std::span<const ClassCounts> classes, Averaging averaging, double beta = 1);

std::vector<ClassCounts> class_counts(const Confusion& confusion);

/// Samples of which each of C classes may be true by itself, predicted where its score is high enough.
class Multilabel {
 public:
  explicit Multilabel(std::int64_t classes) : classes_(static_cast<std::size_t>(classes)) {}
  /// @param samples    C scores, and a target of each class: 0, 1, or -1 for those that are not counted
  /// @param threshold  the least score of what is predicted
  /// @throws DataError  any other number, or not C outputs and C targets
  void add(const Samples& samples, double threshold);

  const std::vector<ClassCounts>& classes() const noexcept { return classes_; }
  /// Mean over samples of what each one's labels come to; 0 of nothing.
  PrecisionRecall over_samples() const;
  double subset_accuracy() const;  ///< share of samples without a wrong label; 0 of nothing
  double hamming_loss() const;     ///< share of labels that are wrong; 0 of nothing

  template <class Visit>
  void visit_words(Visit& visit) {
    for (std::int64_t* const count : {&samples_, &faultless_, &labels_, &wrong_}) visit(*count);
    for (ClassCounts& counts : classes_) {
      for (std::int64_t* const count : {&counts.true_positives, &counts.predicted, &counts.support}) visit(*count);
    }
    for (ExactSum* const sum : {&precision_, &recall_, &f_score_}) visit(*sum);
  }

 private:
  std::int64_t samples_ = 0;
  std::int64_t faultless_ = 0;  // samples
  std::int64_t labels_ = 0;
  std::int64_t wrong_ = 0;  // labels
  std::vector<ClassCounts> classes_;
  ExactSum precision_;
  ExactSum recall_;
  ExactSum f_score_;
};

/// The counts of the k highest scores of each sample. Counts of parts can be added.
struct TopKCounts {
  std::int64_t samples = 0;    ///< that have a target
  std::int64_t found = 0;      ///< samples with at least one target among the k
  std::int64_t hits = 0;       ///< targets among the k
  std::int64_t positives = 0;  ///< targets

  double accuracy() const;                 ///< found / samples; 0 of nothing
  double precision(std::int64_t k) const;  ///< hits / (k samples); 0 of nothing
  double recall() const;                   ///< hits / positives; 0 of nothing
};

/// Counts samples of C scores, whose target is one class of C (or kIgnored), or a 0 or 1 for each class. Counts
/// samples. For equal scores, the class with the lower number is first; NaN is lower than any number.
/// @param k  guesses that a sample gets; 1 <= k <= C
/// @throws DataError  a class outside [0, C), labels other than 0 and 1, or k > C
/// Not collective.
TopKCounts top_k_counts(const Samples& samples, std::int64_t k);

}  // namespace lockstep::metrics
