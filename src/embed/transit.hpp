// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/communicator.hpp>

#include <cstdint>
#include <memory>
#include <optional>

#include "embed/producer.hpp"
#include "embed/receiver.hpp"
#include "embed/roles.hpp"
#include "engine/settings/buffer_settings.hpp"
#include "mpi/shared/mailbox.hpp"

namespace lockstep::embed {

/// The division of the ranks of a session into producers and ranks that train, and the way between them.
class Transit {
 public:
  /// Collective.
  /// @param all  ranks of the session; outlives the object
  /// @throws ConfigError  no rank trains; on every rank
  Transit(const mpi::Communicator& all, bool is_producer);

  /// The ranks that train; on a producer, itself alone.
  const mpi::Communicator& world() const noexcept { return trainers_ ? *trainers_ : *all_; }
  bool has_producers() const noexcept { return mail_.has_value(); }

  /// Producers and ranks that train learn of each other. Collective over all ranks, if there are producers.
  /// @param lanes  those of this rank
  void connect(std::int64_t lanes, const engine::BufferSettings& settings, double timeout_s);
  /// Null before `connect` and on ranks that train.
  Producer* producer() const noexcept { return producer_.get(); }
  /// Null before `connect`, on producers, and if there are none.
  Receiver* receiver() const noexcept { return receiver_.get(); }

 private:
  const mpi::Communicator* all_;
  RankRoles roles_;
  std::optional<mpi::Communicator> trainers_;  // nothing = all ranks train
  std::optional<mpi::Mailbox> mail_;           // nothing = there are no producers
  std::unique_ptr<Producer> producer_;
  std::unique_ptr<Receiver> receiver_;
};

}  // namespace lockstep::embed
