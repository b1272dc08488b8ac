// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/process/waits.hpp"

#include <lockstep/mpi/communicator.hpp>

#include <time.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <sched.h>
#include <utility>

namespace lockstep::mpi {

namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kSpinBeforeYields = 50us;  // then a third process should get the processor
constexpr auto kYieldBeforeNaps = 5ms;    // then this is not a message under way but a rank that is late
constexpr auto kBetweenLooks = 5ms;       // time between two looks at the check
constexpr auto kLastMessages = 20ms;      // a rank that is lost may have sent what is waited for
constexpr timespec kShortNap{.tv_sec = 0, .tv_nsec = 100'000};

std::mutex look_mutex;
std::function<void()> look_around;
std::atomic<bool> has_look = false;

std::atomic<bool> has_loss = false;

constexpr std::int64_t kNotWaiting = 0;
std::atomic<std::int64_t> unbounded_since = kNotWaiting;

}  // namespace

void set_wait_check(std::function<void()> look) {
  const std::lock_guard lock(look_mutex);
  has_look = static_cast<bool>(look);
  look_around = std::move(look);
}

bool has_wait_check() noexcept { return has_look.load(std::memory_order_relaxed); }

void check_wait() {
  if (!has_wait_check()) return;
  std::function<void()> look;
  {
    const std::lock_guard lock(look_mutex);
    look = look_around;
  }
  if (look) look();
}

void wait_for(MPI_Request& request, const char* call) {
  if (!has_wait_check()) return check(MPI_Wait(&request, MPI_STATUS_IGNORE), call);
  const Clock::time_point start = Clock::now();
  Clock::time_point next_look = start + kBetweenLooks;
  std::exception_ptr failure;
  Clock::time_point failed_at;
  while (true) {
    int is_done = 0;
    check(MPI_Test(&request, &is_done, MPI_STATUS_IGNORE), call);
    if (is_done != 0) return;
    const Clock::time_point now = Clock::now();
    if (failure && now - failed_at >= kLastMessages) std::rethrow_exception(failure);
    if (!failure && now >= next_look) {
      next_look = now + kBetweenLooks;
      try {
        check_wait();
      } catch (const std::exception&) {
        failure = std::current_exception();
        failed_at = now;
      }
    }
    if (now - start >= kYieldBeforeNaps) {
      nanosleep(&kShortNap, nullptr);
    } else if (now - start >= kSpinBeforeYields) {
      sched_yield();
    }
  }
}

void note_loss() noexcept { has_loss = true; }

bool has_lost_ranks() noexcept { return has_loss; }

UnboundedCall::UnboundedCall() {
  std::int64_t expected = kNotWaiting;
  is_outer_ = unbounded_since.compare_exchange_strong(expected, Clock::now().time_since_epoch().count());
}

UnboundedCall::~UnboundedCall() {
  if (is_outer_) unbounded_since = kNotWaiting;
}

std::optional<Clock::duration> UnboundedCall::duration() {
  const std::int64_t since = unbounded_since;
  if (since == kNotWaiting) return std::nullopt;
  return Clock::now() - Clock::time_point(Clock::duration(since));
}

}  // namespace lockstep::mpi
