// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/numbers/multilabel.hpp"

#include <lockstep/core/error.hpp>

#include <string>

#include "metrics/numbers/ratio.hpp"

namespace lockstep::metrics {

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

}  // namespace lockstep::metrics
