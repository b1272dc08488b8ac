// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/batch.hpp>
#include <lockstep/core/task.hpp>
#include <lockstep/data/dataset.hpp>
#include <lockstep/mpi/collectives.hpp>

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::engine {

/// The number of steps of each sample before the first step with a value that is NaN or infinite.
/// Differences to inputs without a value do not count: they are gaps.
/// @param output   [N, steps * C, space...]; one step may have any shape [N, ...]
/// @param scaling  of the fields; that of other tasks has its defaults
/// @return         [N], each in [0, steps]
std::vector<std::int64_t> finite_steps(const at::Tensor& output, std::int64_t steps, const batch::Batch& batch,
                                       const FieldScaling& scaling);

/// Rollouts that end because a step is not finite.
class RolloutEnds {
 public:
  /// @param size   number of samples of the data set
  /// @param steps  number of steps of a rollout
  RolloutEnds(std::int64_t size, std::int64_t steps, FieldScaling scaling)
      : size_(size), steps_(steps), scaling_(std::move(scaling)) {}

  /// @param batch  the batch of the data set, with its draws
  /// @return       see finite_steps
  std::vector<std::int64_t> add(const at::Tensor& output, const batch::Batch& batch);
  /// The same, and returns the output with NaN from the step on that is not finite.
  at::Tensor ended(const at::Tensor& output, const batch::Batch& batch);
  /// Collective: every rank gets the counts of all.
  void sum_over_ranks(mpi::Collectives& collectives);

  /// The first step of all rollouts that is not finite, counted from 1. 0 = all are finite.
  std::int64_t first_step() const { return count_ == 0 ? 0 : first_ / size_ + 1; }
  /// A sentence about them, which continues with `consequence`.
  std::string text(const data::Dataset& dataset, const std::string& consequence) const;

 private:
  std::int64_t size_;
  std::int64_t steps_;
  FieldScaling scaling_;
  std::int64_t count_ = 0;  ///< number of rollouts that end
  /// The smallest step * size + sample, where both are counted from 0.
  std::int64_t first_ = std::numeric_limits<std::int64_t>::max();
};

}  // namespace lockstep::engine
