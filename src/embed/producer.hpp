// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/engine/registry.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "embed/letters.hpp"
#include "embed/samples.hpp"
#include "engine/loaded_model.hpp"
#include "engine/settings/buffer_settings.hpp"
#include "mpi/shared/mailbox.hpp"

namespace lockstep::embed {

/// The way of samples from a rank that only produces them to ranks that train, and of weights back.
class Producer {
 public:
  struct ProducerOptions {
    int receiver = 0;                        ///< rank that samples without a lane, and requests, go to
    std::vector<int> receiver_of_lane = {};  ///< ranks; empty without train.lanes
    std::int64_t window_bytes = 1;
    bool drops_when_full = false;
    double timeout_s = 300;  ///< limit of each wait
  };
  /// @param mail  outlives the object
  Producer(mpi::Mailbox& mail, ProducerOptions options) : mail_(&mail), options_(std::move(options)) {}

  /// Sends samples: waits or drops some while the window is full.
  /// @param samples  checked
  /// @throws DataError  there is no such lane
  /// @throws CommError  the receiver has ended, or takes nothing within the time-out
  void push(const SampleForm& form, const batch::Batch& samples, std::optional<std::int64_t> lane);
  /// The weights with which the receiver predicts now, and their step. Waits for its answer, which it gives in its next
  /// call that trains or updates.
  /// @throws ConfigError  it refuses
  /// @throws CommError    as push
  Letter request_weights();
  /// Waits until all samples have arrived, and says that they were the last.
  /// @throws CommError  they do not arrive within the time-out; not if the receiver has ended
  void close();

  std::int64_t dropped() const noexcept { return dropped_; }  ///< samples
  std::int64_t lanes() const noexcept { return std::ssize(options_.receiver_of_lane); }

 private:
  void read_letters();
  bool has_ended();
  void require_receiver();
  void wait(const char* purpose, const std::function<bool()>& is_over);

  mpi::Mailbox* mail_;
  ProducerOptions options_;
  std::int64_t dropped_ = 0;
  std::optional<std::string> ended_;  // why the receiver has ended
  std::optional<std::pair<LetterKind, Letter>> answer_;
};

/// The model of a producer, whose weights are undefined. Collective over `alone`, which is one rank and outlives it.
engine::LoadedModel model_without_weights(const mpi::Communicator& alone, const Sections& sections,
                                          const engine::Registry& registry);

}  // namespace lockstep::embed
