// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/engine/run_view.hpp>

#include <atomic>

namespace lockstep::engine {

namespace {

std::atomic<bool> is_stop_wanted = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler sets it");

}  // namespace

void RunRequests::stop() noexcept { is_stop_wanted.store(true, std::memory_order_relaxed); }

bool RunRequests::is_stop_requested() noexcept { return is_stop_wanted.load(std::memory_order_relaxed); }

}  // namespace lockstep::engine
