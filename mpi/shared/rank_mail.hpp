// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/communicator.hpp>

#include <list>
#include <optional>
#include <string>

namespace lockstep::mpi {

/// Texts that a rank sends to another one at any time, and that arrive while the other rank does something else. No
/// member waits for a rank, except that the constructor is collective. One thread at a time may use it.
class RankMail {
 public:
  struct ReceivedMail {
    int from = 0;
    int kind = 0;
    std::string text = {};
  };

  explicit RankMail(const Communicator& world) : comm_(world.handle()) {}
  RankMail(const RankMail&) = delete;
  RankMail& operator=(const RankMail&) = delete;
  /// RankMail that nobody has received are given up.
  ~RankMail();

  /// @param kind  a small number, not negative
  void send(int rank, int kind, std::string text);
  /// The next letter that has arrived.
  std::optional<ReceivedMail> receive();

 private:
  struct Outgoing {
    std::string text;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  void forget_what_has_arrived();

  Communicator comm_;
  std::list<Outgoing> sent_;
};

}  // namespace lockstep::mpi
