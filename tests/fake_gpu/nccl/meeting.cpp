// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/nccl/meeting.hpp"

#include <ctime>
#include <linux/futex.h>
#include <sched.h>
#include <string>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fake_gpu/nccl/errors.hpp"

namespace lockstep::fake_gpu::nccl {

namespace {

constexpr int kYields = 50;                      // a peer that is about to arrive needs no sleep
constexpr std::timespec kNap = {0, 10'000'000};  // then a look at `stop`, which wakes nobody

static_assert(std::atomic<std::uint32_t>::is_always_lock_free);  // so it works between processes

// std::atomic's own waiting does not reach other processes.
long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value, const std::timespec* limit) {
  return syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation, value, limit, nullptr, 0);
}

std::shared_ptr<MeetingRegion> open_region(const Place& place) {
  auto* const region = static_cast<MeetingRegion*>(open_place(place, sizeof(MeetingRegion)));
  return {region, [](MeetingRegion* mapped) { munmap(mapped, sizeof(MeetingRegion)); }};
}

}  // namespace

bool Gate::has_come(int rank) const {
  // The counters may wrap around, so their difference is what counts.
  return static_cast<std::int32_t>(arrivals_[static_cast<std::size_t>(rank)] - meetings_) >= 0;
}

void Gate::arrive() {
  constexpr std::uint32_t kEverybody = 0x7fffffff;
  auto& mine = arrivals_[static_cast<std::size_t>(position_.rank)];
  mine = ++meetings_;
  futex(mine, FUTEX_WAKE, kEverybody, nullptr);
}

bool Gate::is_complete() const {
  for (int rank = 0; rank < position_.size; ++rank) {
    if (!has_come(rank)) return false;
  }
  return true;
}

bool Gate::wait(const std::atomic<bool>& stop) const {
  for (int rank = 0; rank < position_.size; ++rank) {
    for (int yields = 0; !has_come(rank); ++yields) {
      if (stop) return false;
      if (yields < kYields) {
        sched_yield();
        continue;
      }
      auto& word = arrivals_[static_cast<std::size_t>(rank)];
      const std::uint32_t seen = word;
      if (!has_come(rank)) futex(word, FUTEX_WAIT, seen, &kNap);
    }
  }
  return true;
}

NcclMeeting::NcclMeeting(const Place& place, Position position)
    : position_(position),
      region_(open_region(place)),
      host_gate_(region_->at_host_gate, position),
      device_gate_(region_->at_device_gate, position) {
  if (region_->is_taken[static_cast<std::size_t>(position.rank)].exchange(1) == 0) return;
  throw Refusal(ncclInvalidUsage,
                "Rank " + std::to_string(position.rank) + " was given to two communicators with one id.");
}

}  // namespace lockstep::fake_gpu::nccl
