// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/communicator.hpp>

#include <list>
#include <optional>
#include <string>

namespace lockstep::mpi {

/// Texts that a rank sends to another one at any time, and that arrive while the other rank does something else. No
/// member waits for a rank, except that the constructor is collective. One thread at a time may use it.
class Letters {
 public:
  struct Letter {
    int from = 0;
    int kind = 0;
    std::string text = {};
  };

  explicit Letters(const Communicator& world) : comm_(world.handle()) {}
  Letters(const Letters&) = delete;
  Letters& operator=(const Letters&) = delete;
  /// Letters that nobody has received are given up.
  ~Letters();

  /// @param kind  a small number, not negative
  void send(int rank, int kind, std::string text);
  /// The next letter that has arrived.
  std::optional<Letter> receive();

 private:
  struct Sent {
    std::string text;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  void forget_what_has_arrived();

  Communicator comm_;
  std::list<Sent> sent_;
};

}  // namespace lockstep::mpi
