// SPDX-License-Identifier: BSD-3-Clause
#include "core/system/lost_pages.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <sys/mman.h>
#include <unistd.h>

namespace lockstep {

namespace {

constexpr std::size_t kMaxGuards = 256;

/// A guarded mapping. The handler reads it without a lock; `size` is 0 while the slot is free.
struct Guard {
  std::atomic<std::uintptr_t> start{0};
  std::atomic<std::size_t> size{0};
  std::atomic<std::size_t> first_lost{SIZE_MAX};
};

std::array<Guard, kMaxGuards> guards;
std::mutex guards_mutex;
struct sigaction earlier_action;
std::uintptr_t page_size = 4096;

// Only what is safe in a signal handler is called.
extern "C" void on_bus_error(int, siginfo_t* info, void*) {
  const int saved_errno = errno;
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  for (Guard& guard : guards) {
    const std::uintptr_t start = guard.start;
    if (address < start || address - start >= guard.size) continue;
    const std::uintptr_t page = address / page_size * page_size;
    void* const mapped =
        mmap(reinterpret_cast<void*>(page), page_size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (mapped == MAP_FAILED) break;
    std::size_t first = guard.first_lost;
    while (page - start < first && !guard.first_lost.compare_exchange_weak(first, page - start)) {
    }
    errno = saved_errno;
    return;
  }
  sigaction(SIGBUS, &earlier_action, nullptr);  // the fault repeats after the return
  errno = saved_errno;
}

void install_handler() {
  page_size = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, &earlier_action);
}

}  // namespace

LostPages::LostPages(std::span<const std::byte> mapping) {
  if (mapping.empty()) return;
  static std::once_flag installed;
  std::call_once(installed, install_handler);
  const std::scoped_lock lock(guards_mutex);
  for (std::size_t i = 0; i < guards.size(); ++i) {
    if (guards[i].size != 0) continue;
    guards[i].start = reinterpret_cast<std::uintptr_t>(mapping.data());
    guards[i].first_lost = SIZE_MAX;
    guards[i].size = mapping.size();
    slot_ = static_cast<int>(i);
    return;
  }
}

LostPages::~LostPages() {
  if (slot_ >= 0) guards[static_cast<std::size_t>(slot_)].size = 0;
}

std::size_t LostPages::first() const noexcept {
  return slot_ < 0 ? SIZE_MAX : guards[static_cast<std::size_t>(slot_)].first_lost.load();
}

}  // namespace lockstep
