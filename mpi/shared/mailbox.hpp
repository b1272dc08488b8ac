// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/communicator.hpp>

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "mpi/shared/rendezvous.hpp"

namespace lockstep::mpi {

/// Letters of any length between ranks: a sender goes on at once, and a receiver takes what has arrived when it looks.
/// The letters of a rank arrive in the order in which it sent them. MPI is called by the calling thread, inside the
/// members only, so letters move while both sides are inside some function of MPI.
class Mailbox {
 public:
  using MailBytes = std::vector<std::byte>;
  struct Mail {
    int from = 0;
    int kind = 0;
    MailBytes bytes = {};
  };
  /// Letters that their receivers have not begun to receive.
  struct UnderWay {
    std::size_t letters = 0;
    std::size_t bytes = 0;
  };

  /// Collective.
  /// @param comm          without other messages between two ranks; outlives the object
  /// @param host_of_rank  a number for the host of each rank
  Mailbox(const Communicator& comm, const std::vector<int>& host_of_rank);
  /// Forgets letters that are under way. Not collective.
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  /// Sends a letter. Never waits.
  /// @param kind  0 to 1000
  void post(int receiver, int kind, std::shared_ptr<const MailBytes> bytes);
  /// The letters that this rank has sent. Never waits.
  UnderWay under_way();
  /// The next letter that has arrived, if there is one. Never waits.
  std::optional<Mail> take();

  /// Whether the process of a rank has ended, if it runs on this host and can be watched.
  bool is_gone(int rank) const { return watch_->is_dead(rank); }

 private:
  struct Sent {
    std::shared_ptr<const MailBytes> letter;
    std::size_t bytes;
    MPI_Request request;
  };
  struct Incoming {
    int from;
    int tag;
    MailBytes bytes;
    MPI_Request request;
  };
  void begin_to_receive();
  /// Gives up a message. MPI may use its memory for as long as the process runs, so it is kept.
  void forget(bool is_mpi_over, MPI_Request& request, std::shared_ptr<const MailBytes> bytes) const;

  const Communicator* comm_;
  std::unique_ptr<PeerWatch> watch_;
  std::deque<Sent> sent_;
  std::deque<Incoming> incoming_;   // the first that arrived comes first
  std::map<int, MailBytes> parts_;  // the first pieces of a long letter, by sender
};

}  // namespace lockstep::mpi
