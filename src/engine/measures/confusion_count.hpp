// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/engine/event_storage.hpp>
#include <lockstep/engine/train_step.hpp>
#include <lockstep/mpi/collectives.hpp>

#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::engine {

/// How often each class was taken for each, where every sample has one class and a score for each: the table that the
/// meter "confusion" gives, without its numbers, and where samples are something else none.
class ConfusionCount {
 public:
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
