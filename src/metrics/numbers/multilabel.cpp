// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/numbers/multilabel.hpp"

#include <lockstep/core/error.hpp>

#include <string>

#include "metrics/numbers/ratio.hpp"

namespace lockstep::metrics {

Multilabel::Multilabel(std::span<const std::int64_t> words, std::int64_t classes)
    : samples_(words[0]),
      faultless_(words[1]),
      labels_(words[2]),
      wrong_(words[3]),
      classes_(static_cast<std::size_t>(classes)) {
  words = words.subspan(4);
  for (ClassCounts& counts : classes_) {
    counts = {words[0], words[1], words[2]};
    words = words.subspan(3);
  }
  for (ExactSum* const sum : {&precision_, &recall_, &f_score_}) {
    *sum = ExactSum(words.first(ExactSum::kWords));
    words = words.subspan(ExactSum::kWords);
  }
}

void Multilabel::add(const Samples& samples, double threshold) {
  if (samples.size() == 0) return;
  if (samples.output_columns != classes_.size() || samples.target_columns != classes_.size()) {
    throw DataError(std::to_string(classes_.size()) + " classes need one score and one label per class, not " +
                    std::to_string(samples.output_columns) + " outputs and " + std::to_string(samples.target_columns) +
                    " targets");
  }
  for (std::size_t i = 0; i < samples.size(); ++i) {
    ClassCounts one;
    std::int64_t wrong = 0;
    for (std::size_t c = 0; c < classes_.size(); ++c) {
      const int label = label_of(samples.target(i)[c]);
      if (label < 0) continue;
      const int predicted = samples.output(i)[c] >= threshold ? 1 : 0;
      for (ClassCounts* const counts : {&one, &classes_[c]}) {
        counts->true_positives += label * predicted;
        counts->predicted += predicted;
        counts->support += label;
      }
      ++labels_;
      wrong += label != predicted;
    }
    const PrecisionRecall ratios = precision_recall(one);
    precision_.add(ratios.precision);
    recall_.add(ratios.recall);
    f_score_.add(ratios.f_score);
    ++samples_;
    wrong_ += wrong;
    faultless_ += wrong == 0;
  }
}

PrecisionRecall Multilabel::over_samples() const {
  const auto n = static_cast<double>(samples_);
  return {ratio(precision_.value(), n), ratio(recall_.value(), n), ratio(f_score_.value(), n)};
}

double Multilabel::subset_accuracy() const { return ratio(faultless_, samples_); }
double Multilabel::hamming_loss() const { return ratio(wrong_, labels_); }

void Multilabel::store(std::span<std::int64_t> words) const {
  words[0] = samples_;
  words[1] = faultless_;
  words[2] = labels_;
  words[3] = wrong_;
  words = words.subspan(4);
  for (const ClassCounts& counts : classes_) {
    words[0] = counts.true_positives;
    words[1] = counts.predicted;
    words[2] = counts.support;
    words = words.subspan(3);
  }
  for (const ExactSum* const sum : {&precision_, &recall_, &f_score_}) {
    sum->store(words.first(ExactSum::kWords));
    words = words.subspan(ExactSum::kWords);
  }
}

}  // namespace lockstep::metrics
