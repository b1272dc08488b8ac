// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/shared/cross_communicator_deadlock.hpp"

#include <algorithm>
#include <mutex>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

namespace lockstep::mpi {

namespace {

std::mutex places_mutex;

std::vector<WaitPoint*>& places() {
  static std::vector<WaitPoint*> all;
  return all;
}

}  // namespace

WaitPoint::WaitPoint() {
  const std::lock_guard<std::mutex> hold(places_mutex);
  places().push_back(this);
}

WaitPoint::~WaitPoint() {
  const std::lock_guard<std::mutex> hold(places_mutex);
  std::erase(places(), this);
}

std::uint32_t WaitPoint::this_thread() {
  thread_local const auto number = static_cast<std::uint32_t>(syscall(SYS_gettid));
  return number;
}

bool WaitPoint::is_crossed(int world_rank, std::uint32_t peer_thread) const {
  const std::lock_guard<std::mutex> hold(places_mutex);
  return std::any_of(places().begin(), places().end(), [&](WaitPoint* place) {
    const bool is_mine = place->user_.load(std::memory_order_relaxed) == this_thread();
    return place != this && is_mine && place->is_awaited_by(world_rank, peer_thread);
  });
}

std::string cross_communicator_deadlock(int rank, int peer, const Call& call) {
  const std::string here = "rank " + std::to_string(rank);
  const std::string there = "rank " + std::to_string(peer);
  return here + " waits for " + there + " in " + describe(call) + ", while " + there + " waits for " + here +
         " in an operation of another communicator; use the communicators in the same order on all ranks";
}

}  // namespace lockstep::mpi
