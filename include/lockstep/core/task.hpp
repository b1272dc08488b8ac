// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

/// What a data set asks of a model: how a sample looks and among how many classes each prediction chooses.
struct Task {
  std::vector<std::int64_t>
      sample_shape;          ///< of one input, without the batch dimension: {1, 28, 28}, or {block} tokens
  std::int64_t classes = 0;  ///< number of classes; for text, of tokens in the vocabulary
  std::int64_t predictions_per_sample = 1;  ///< 1 for a labelled image, `block` for text
  bool is_text = false;                     ///< inputs are int64 token numbers instead of numbers of the model's dtype
};

}  // namespace lockstep
