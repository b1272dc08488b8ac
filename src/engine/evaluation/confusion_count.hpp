// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/task.hpp>
#include <lockstep/engine/event_storage.hpp>
#include <lockstep/engine/train_step.hpp>
#include <lockstep/mpi/collectives.hpp>

#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::engine {

/// The confusion matrix, if every sample has one class and one score per class: the table of the meter "confusion"
/// without its numbers. Otherwise none.
class ConfusionCount {
 public:
  /// The classes of a task that are counted without a request; 0 = none.
  /// @param is_per_class  eval.per_class: of many classes, too
  static std::int64_t classes_of(const Task& task, bool is_per_class);

  /// @param classes  0 = nothing is counted
  explicit ConfusionCount(std::int64_t classes);

  void add(const LastBatch& batch);
  /// Collective, unless nothing is counted.
  void sum_over_ranks(mpi::Collectives& collectives);
  std::optional<Table> table() const;

 private:
  std::int64_t classes_;
  std::vector<std::int64_t> words_;  // counts, [classes, classes], and how many batches cannot be counted
};

}  // namespace lockstep::engine
