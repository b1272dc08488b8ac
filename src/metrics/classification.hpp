// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/tensor.hpp>

#include <cstdint>
#include <optional>

namespace lockstep::metrics {

/// The number of targets of a batch, and of correct ones (the highest score is that of the target).
struct Answers {
  std::int64_t correct = 0;
  std::int64_t count = 0;  ///< targets that are not ignored (-100)

  bool operator==(const Answers&) const = default;
};

/// Counts one batch. Not collective.
/// @param scores  [..., C]
/// @param target  [...] int64 in [0, C), or -100: not counted
/// @return        nothing where the target has another shape, such as a number for each output
std::optional<Answers> count_answers(const Tensor& scores, const Tensor& target);

}  // namespace lockstep::metrics
