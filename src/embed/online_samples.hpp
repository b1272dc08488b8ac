// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/engine/stateful.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "embed/rank_buffers.hpp"
#include "embed/running_statistics.hpp"
#include "embed/samples.hpp"
#include "engine/settings/buffer_settings.hpp"

namespace lockstep::embed {

/// The samples that a run has seen: its buffers, and the statistics with which its model normalizes.
class OnlineSamples {
 public:
  /// Collective.
  /// @param world     all ranks; outlives the object
  /// @param sections  buffer, ckpt, data, run, strategy and train are read
  /// @throws ConfigError  on every rank
  OnlineSamples(const mpi::Communicator& world, const Sections& sections);

  /// The components of checkpoints.
  /// @param collectives  of all ranks; outlives the components, as this object does
  std::vector<std::shared_ptr<engine::Stateful>> states(const std::function<mpi::Collectives&()>& collectives);

  /// Keeps samples with this type of real numbers; the statistics see them as they are given.
  /// @throws DataError  see RankBuffers
  void push(const SampleForm& form, const batch::Batch& given, std::optional<std::int64_t> lane, at::ScalarType type);
  /// Counts the micro_batches of a step in the statistics.
  void count(const std::vector<batch::Batch>& micro_batches);
  /// The model normalizes with the samples until now. Collective.
  void normalize(mpi::Collectives& collectives, models::Model& model);

  bool has_statistics() const noexcept { return statistics_ != nullptr; }
  const RankBuffers& buffers() const noexcept { return buffers_; }
  /// Whether they are enough for the first step (buffer.min).
  bool is_filled(std::int64_t kept) const noexcept { return kept >= settings_.min.value; }
  /// @param kept  samples in the buffers of all ranks
  /// @throws DataError  they are too few; on every rank
  void require_filled(std::int64_t kept) const;

 private:
  const mpi::Communicator& world_;
  engine::BufferSettings settings_;
  engine::BatchLayout layout_;
  bool are_saved_;
  RankBuffers buffers_;
  std::unique_ptr<RunningStatistics> statistics_;  // null = the model does not normalize
};

}  // namespace lockstep::embed
