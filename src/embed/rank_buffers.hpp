// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/engine/run_view.hpp>
#include <lockstep/engine/stateful.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "embed/replay_buffer.hpp"
#include "engine/settings/buffer_settings.hpp"

namespace lockstep::embed {

/// The buffers of this rank: one or, with lanes, one for each of its lanes.
class RankBuffers {
 public:
  /// @param layout  of the training
  /// @param seed    run.seed
  /// @param rank    of this process
  RankBuffers(const engine::BufferSettings& settings, const engine::BatchLayout& layout, std::uint64_t seed, int rank);

  /// The rows of a batch for each buffer: all for that of the lane, or dealt over the lanes of this rank in turn.
  /// @param count  number of samples
  /// @throws DataError  the lane does not belong to this rank
  std::vector<std::vector<std::int64_t>> deal(std::int64_t count, std::optional<std::int64_t> lane) const;
  /// Keeps samples.
  /// @param rows  a result of `deal`
  /// @throws DataError  as ReplayBuffer::push
  void push(const batch::Batch& batch, const std::vector<std::vector<std::int64_t>>& rows);

  std::int64_t size() const;  ///< samples of this rank
  /// Samples that this rank adds to a step: none of an empty buffer.
  std::int64_t samples_per_step() const;
  /// The values of the micro_batches of a step; without values where the buffer is empty.
  std::vector<batch::ValueMap> draw(std::int64_t step) const;

  /// The component of checkpoints. Each checkpoint has the buffers of all ranks; those of lanes can be restored on any
  /// number of ranks.
  /// @param world  all ranks; outlives the component, as this object does
  std::shared_ptr<engine::Stateful> state(const mpi::Communicator& world);

 private:
  friend class RankBuffersState;

  /// The number of the first buffer of this rank among those of all ranks.
  std::int64_t first() const { return layout_.lanes > 0 ? layout_.first_lane : rank_; }
  std::int64_t share_of(std::size_t buffer) const;

  engine::BatchLayout layout_;
  int rank_;
  std::vector<ReplayBuffer> buffers_;
};

}  // namespace lockstep::embed
