// SPDX-License-Identifier: BSD-3-Clause
#include "core/system/status_line.hpp"

#include <algorithm>
#include <array>
#include <ctime>
#include <exception>
#include <mutex>
#include <utility>

namespace lockstep {

namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

// A place: 8 bits of the activity, 8 of the phase, 48 of the time, enough for 8 years.
constexpr int kActivityShift = 56;
constexpr int kPhaseShift = 48;
constexpr std::uint64_t kTimeMask = (std::uint64_t{1} << kPhaseShift) - 1;

constexpr int kKindShift = 56;
constexpr std::int32_t kExit = 1 << 16;    // bit in StatusLine::end, with the exit code
constexpr std::int32_t kSignal = 1 << 17;  // likewise, with the signal

StatusLine unseen_line;
std::atomic<StatusLine*> current_line{&unseen_line};
std::atomic<const char*> innermost_block{nullptr};

std::mutex worker_reports_mutex;

std::vector<const std::function<std::vector<std::string>()>*>& worker_reports() {
  static std::vector<const std::function<std::vector<std::string>()>*> all;
  return all;
}

/// Replaces the place of this process, and gives the one before.
std::uint64_t exchange_place(const Place& place) noexcept {
  StatusLine& mine = status_line();
  const std::uint64_t before = mine.place.load(kRelaxed);
  mine.place.store(packed(place), kRelaxed);
  return before;
}

Activity current_activity() noexcept { return unpacked_place(status_line().place.load(kRelaxed)).activity; }

/// An exception leaves the place as it is.
void restore(std::uint64_t before, int exceptions) noexcept {
  if (std::uncaught_exceptions() == exceptions) status_line().place.store(before, kRelaxed);
}

}  // namespace

const char* name_of(Activity activity) {
  static constexpr std::array kNames = {"start", "training", "evaluation", "saving", "ended"};
  return kNames.at(static_cast<std::size_t>(activity));
}

const char* name_of(Phase phase) {
  static constexpr std::array kNames = {"none",   "data",  "forward",       "backward",
                                        "update", "hooks", "communication", "agreement"};
  return kNames.at(static_cast<std::size_t>(phase));
}

std::int64_t monotonic_us() noexcept {
  std::timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return now.tv_sec * 1'000'000 + now.tv_nsec / 1000;
}

std::uint64_t packed(const Place& place) {
  return static_cast<std::uint64_t>(place.activity) << kActivityShift |
         static_cast<std::uint64_t>(place.phase) << kPhaseShift |
         (static_cast<std::uint64_t>(place.since_us) & kTimeMask);
}

Place unpacked_place(std::uint64_t word) {
  constexpr std::uint64_t kByte = 0xff;
  const auto activity = std::min<std::uint64_t>(word >> kActivityShift, static_cast<std::uint64_t>(Activity::ended));
  const auto phase = std::min<std::uint64_t>(word >> kPhaseShift & kByte, static_cast<std::uint64_t>(Phase::agreement));
  return {.activity = static_cast<Activity>(activity),
          .phase = static_cast<Phase>(phase),
          .since_us = static_cast<std::int64_t>(word & kTimeMask)};
}

StatusLine& status_line() noexcept { return *current_line.load(kRelaxed); }

void use_status_line(StatusLine* other) noexcept {
  StatusLine* const next = other == nullptr ? &unseen_line : other;
  const StatusLine& before = status_line();
  next->place.store(before.place.load(kRelaxed), kRelaxed);
  next->step.store(before.step.load(kRelaxed), kRelaxed);
  next->call.store(before.call.load(kRelaxed), kRelaxed);
  current_line.store(next, kRelaxed);
}

void set_phase(Phase phase) noexcept {
  exchange_place({.activity = current_activity(), .phase = phase, .since_us = monotonic_us()});
}

void set_step(std::int64_t step) noexcept { status_line().step.store(step, kRelaxed); }

const char* set_block(const char* path) noexcept {
  const char* const before = innermost_block.load(kRelaxed);
  innermost_block.store(path, kRelaxed);
  return before;
}

const char* current_block() noexcept { return innermost_block.load(kRelaxed); }

void note_exit(int code) noexcept {
  std::int32_t none = 0;
  status_line().end.compare_exchange_strong(none, kExit | code);
}

void note_signal(int signal) noexcept {
  std::int32_t none = 0;
  status_line().end.compare_exchange_strong(none, kSignal | signal);
}

NotedEnd unpacked_end(std::int32_t word) {
  if ((word & kSignal) != 0) return {.signal = word & ~kSignal};
  if ((word & kExit) != 0) return {.code = word & ~kExit};
  return {};
}

ScopedPhase::ScopedPhase(Phase phase) noexcept
    : before_(exchange_place({.activity = current_activity(), .phase = phase, .since_us = monotonic_us()})),
      exceptions_(std::uncaught_exceptions()) {}

ScopedPhase::ScopedPhase(std::uint64_t sequence, std::uint8_t kind) noexcept : ScopedPhase(Phase::communication) {
  status_line().call.store(static_cast<std::uint64_t>(kind) << kKindShift | sequence, kRelaxed);
}

ScopedPhase::~ScopedPhase() { restore(before_, exceptions_); }

ScopedActivity::ScopedActivity(Activity activity) noexcept
    : before_(exchange_place({.activity = activity, .since_us = monotonic_us()})),
      exceptions_(std::uncaught_exceptions()) {}

ScopedActivity::~ScopedActivity() { restore(before_, exceptions_); }

std::uint64_t sequence_of(std::uint64_t call) { return call & ((std::uint64_t{1} << kKindShift) - 1); }

std::uint8_t kind_of(std::uint64_t call) { return static_cast<std::uint8_t>(call >> kKindShift); }

WorkerReport::WorkerReport(std::function<std::vector<std::string>()> tell) : tell_(std::move(tell)) {
  const std::lock_guard<std::mutex> hold(worker_reports_mutex);
  worker_reports().push_back(&tell_);
}

WorkerReport::~WorkerReport() {
  const std::lock_guard<std::mutex> hold(worker_reports_mutex);
  std::erase(worker_reports(), &tell_);
}

std::vector<std::string> worker_lines() {
  const std::lock_guard<std::mutex> hold(worker_reports_mutex);
  std::vector<std::string> all;
  for (const auto* tell : worker_reports()) {
    for (std::string& told : (*tell)()) all.push_back(std::move(told));
  }
  return all;
}

}  // namespace lockstep
