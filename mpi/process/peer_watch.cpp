// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/process/peer_watch.hpp"

#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace lockstep::mpi {

ProcessId ProcessId::mine() {
  struct stat status {};
  const bool is_known = stat("/proc/self/ns/pid", &status) == 0;
  return {.pid = getpid(), .name_space = is_known ? status.st_ino : 0};
}

PeerWatch::PeerWatch(const std::vector<ProcessId>& peers) {
  const ProcessId mine = ProcessId::mine();
  for (const ProcessId& peer : peers) {
    const bool is_visible = peer.name_space == mine.name_space && peer.pid != mine.pid;
    descriptors_.push_back(is_visible ? static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)) : -1);
  }
}

PeerWatch::~PeerWatch() {
  for (const int descriptor : descriptors_) {
    if (descriptor >= 0) close(descriptor);
  }
}

bool PeerWatch::is_dead(int peer) const {
  pollfd entry{.fd = descriptors_[peer], .events = POLLIN, .revents = 0};
  return entry.fd >= 0 && poll(&entry, 1, 0) == 1 && (entry.revents & POLLIN) != 0;
}

}  // namespace lockstep::mpi
