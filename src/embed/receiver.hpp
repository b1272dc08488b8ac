// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "embed/letters.hpp"
#include "mpi/shared/mailbox.hpp"

namespace lockstep::embed {

/// The letters of producers, on a rank that trains.
class Receiver {
 public:
  /// Keeps samples that a producer has checked. What it throws is a fault of the samples.
  using Keep = std::function<void(const SampleTensors&, std::optional<std::int64_t> lane)>;
  /// The weights that predictions use, or a refusal.
  using MakeWeights = std::function<std::pair<LetterKind, Letter>()>;

  /// @param mail       outlives the object
  /// @param producers  those that this rank serves; others may send samples for its lanes
  Receiver(mpi::Mailbox& mail, const std::vector<int>& producers);

  /// Reads all letters that have arrived: keeps samples and answers requests. Never waits.
  void receive(const Keep& keep, const MakeWeights& weights);

  /// Throws the next fault that `receive` has found, if there is one.
  /// @throws DataError  samples had a fault; they are lost
  /// @throws CommError  the process of a producer has ended without its last letter
  void report_fault();

  std::int64_t open() const;                                    ///< producers served that have not ended
  std::int64_t received() const noexcept { return received_; }  ///< samples, with those that had a fault
  std::int64_t dropped() const noexcept { return dropped_; }    ///< samples, as producers said when they closed

  /// @param open, received, dropped  sums of all ranks that train
  /// @throws CommError  there are no producers any more; once, on every rank
  void require_producers(std::int64_t open, std::int64_t received, std::int64_t dropped);

  /// Tells the producers that are open that no letter is read any more. Never waits.
  void end(const std::string& reason) noexcept;

 private:
  struct Peer {
    int rank;
    bool is_open = true;
  };
  void read(mpi::Mailbox::Mail& letter, const Keep& keep, const MakeWeights& weights);
  void read_all(const Keep& keep, const MakeWeights& weights);

  mpi::Mailbox* mail_;
  std::vector<Peer> peers_;
  std::deque<std::exception_ptr> faults_;  // not reported yet
  std::int64_t received_ = 0;
  std::int64_t dropped_ = 0;
  bool is_end_reported_ = false;  // that the last producer has ended
};

}  // namespace lockstep::embed
