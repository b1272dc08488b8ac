// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "metrics/numbers/confusion.hpp"

namespace lockstep::metrics {

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

}  // namespace lockstep::metrics
