// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <sys/types.h>
#include <vector>

namespace lockstep::mpi {

/// A process, and the name space in which its number counts.
struct ProcessId {
  pid_t pid = 0;
  std::uint64_t name_space = 0;

  static ProcessId mine();
};

/// Knows which of some processes have ended, zombies included. One that cannot be watched (another container, an old
/// kernel) counts as alive.
class PeerWatch {
 public:
  explicit PeerWatch(const std::vector<ProcessId>& peers);
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;
  ~PeerWatch();

  bool is_dead(int peer) const;

 private:
  std::vector<int> descriptors_;
};

}  // namespace lockstep::mpi
