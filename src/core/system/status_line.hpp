// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

// The place at which this process is, for others who want to know why it is late. Writing it costs a few nanoseconds.
namespace lockstep {

/// The larger part of a run.
enum class Activity : std::uint8_t { start, training, evaluation, saving, ended };

/// The work within an activity.
enum class Phase : std::uint8_t { none, data, forward, backward, update, hooks, communication, agreement };

const char* name_of(Activity activity);
const char* name_of(Phase phase);

/// The place of a process, and since when it is there.
struct Place {
  Activity activity = Activity::start;
  Phase phase = Phase::none;
  std::int64_t since_us = 0;  ///< time on the monotonic clock, which all processes of a host share

  double seconds(std::int64_t now_us) const { return static_cast<double>(now_us - since_us) * 1e-6; }
};

/// The time on that clock, to a few milliseconds.
std::int64_t monotonic_us() noexcept;

/// One cache line of facts about a process, in memory that other processes may see. The process writes it with single
/// stores; a reader may see values of two moments.
struct alignas(64) StatusLine {
  std::atomic<std::uint64_t> place{0};  ///< a packed Place
  std::atomic<std::int64_t> step{0};    ///< step at hand; the first is 1
  std::atomic<std::uint64_t> call{0};   ///< number of the last call of Collectives that it waited for, and its kind
  std::atomic<std::int32_t> pid{0};
  std::atomic<std::int32_t> end{0};  ///< 0, or how the process ends by itself: see note_exit and note_signal
  std::atomic<std::uint64_t> configuration{0};
  std::atomic<std::uint64_t> program{0};
  std::atomic<std::uint64_t> answered{0};  ///< last question that the process has answered
};
static_assert(sizeof(StatusLine) == 64 && std::atomic<std::uint64_t>::is_always_lock_free);

std::uint64_t packed(const Place& place);
Place unpacked_place(std::uint64_t word);

/// The line of this process; at first one that nobody else sees.
StatusLine& status_line() noexcept;
/// Continues in another line; null = in that which nobody else sees. The caller keeps it alive until it gives another.
void use_status_line(StatusLine* line) noexcept;

void set_phase(Phase phase) noexcept;
void set_step(std::int64_t step) noexcept;

/// The block of the model in whose forward pass this process is: a text that stays valid; null = none.
/// @return  the one before
const char* set_block(const char* path) noexcept;
const char* current_block() noexcept;

/// Notes that the process ends by itself, with this exit code, or by this signal. Safe in a signal handler.
void note_exit(int code) noexcept;
void note_signal(int signal) noexcept;

/// How a process ends by itself.
struct NotedEnd {
  int code = -1;   ///< exit code; -1 = none is noted
  int signal = 0;  ///< 0 = none is noted
};
NotedEnd unpacked_end(std::int32_t word);

/// A phase that interrupts another one, which continues afterwards. What an exception leaves is kept: it shows where
/// the process has failed.
class ScopedPhase {
 public:
  explicit ScopedPhase(Phase phase) noexcept;
  /// Waits for a call of Collectives.
  /// @param kind  the number of its kind
  ScopedPhase(std::uint64_t sequence, std::uint8_t kind) noexcept;
  ScopedPhase(const ScopedPhase&) = delete;
  ScopedPhase& operator=(const ScopedPhase&) = delete;
  ~ScopedPhase();

 private:
  std::uint64_t before_;
  int exceptions_;
};

/// The same for an activity.
class ScopedActivity {
 public:
  explicit ScopedActivity(Activity activity) noexcept;
  ScopedActivity(const ScopedActivity&) = delete;
  ScopedActivity& operator=(const ScopedActivity&) = delete;
  ~ScopedActivity();

 private:
  std::uint64_t before_;
  int exceptions_;
};

/// The number and the kind of a call in StatusLine::call.
std::uint64_t sequence_of(std::uint64_t call);
std::uint8_t kind_of(std::uint64_t call);

/// Lets other threads ask what the worker threads of an object do, as long as this object exists.
class WorkerReport {
 public:
  /// @param tell  one line for each worker that does something; called from any thread, must not wait for the workers
  explicit WorkerReport(std::function<std::vector<std::string>()> tell);
  WorkerReport(const WorkerReport&) = delete;
  WorkerReport& operator=(const WorkerReport&) = delete;
  ~WorkerReport();

 private:
  std::function<std::vector<std::string>()> tell_;
};

/// The lines of all of this process.
std::vector<std::string> worker_lines();

}  // namespace lockstep
