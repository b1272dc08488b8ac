// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

// The times of the sections of a step: host time, and GPU time on a GPU.
namespace lockstep::engine {

/// Sections of the standard step, in the order of the step; the first contains all others.
inline constexpr std::array<std::string_view, 8> kStepSections = {
    "train_step_total", "read_sample",   "forward",  "loss_compute",
    "loss_all_reduce",  "meters_update", "backward", "optimizer_step"};

/// Statistics of a series of times.
class PerfMetric {
 public:
  /// The weight of a new value in the smoothed value.
  static constexpr double kNewWeight = 0.1;

  void add(double value);

  double last() const noexcept { return last_; }
  /// 0.1 * new value + 0.9 * previous smoothed value; initially the first value.
  double smoothed() const noexcept { return smoothed_; }
  double sum() const noexcept { return sum_; }
  std::int64_t count() const noexcept { return count_; }
  double average() const noexcept { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }

 private:
  double last_ = 0;
  double smoothed_ = 0;
  double sum_ = 0;
  std::int64_t count_ = 0;
};

/// Measures times on a device with marks in its current stream. Not thread-safe.
class DeviceClock {
 public:
  using Mark = std::shared_ptr<const void>;

  virtual ~DeviceClock() = default;
  /// Records a mark after the current work of the stream. Does not wait.
  virtual Mark mark() = 0;
  virtual bool is_over(const Mark& mark) const = 0;
  /// Milliseconds between two marks that are over.
  virtual double ms_between(const Mark& begin, const Mark& end) const = 0;
  /// Returns when the device has finished its work.
  virtual void wait() const = 0;
};

/// @return  null for the CPU
std::unique_ptr<DeviceClock> make_device_clock(const c10::Device& device);

/// The times of sections by name. Not thread-safe; not collective. A timer reads the clock twice and, on a GPU, records
/// two events.
class PerfStats {
 public:
  struct TimedSection {
    PerfMetric host_ms;
    PerfMetric device_ms;  ///< only the intervals that the device has finished
  };
  using TimedSections = std::map<std::string, TimedSection, std::less<>>;
  /// Seconds since any fixed time.
  using TimeFunction = std::function<double()>;

  /// Maximum number of intervals that wait for the device; the device times of further intervals are lost.
  static constexpr std::size_t kMaxPending = 1000;

  /// @param device  null = host times only
  /// @param clock   clock of the host; default: the steady clock
  explicit PerfStats(std::unique_ptr<DeviceClock> device = nullptr, TimeFunction clock = {});

  /// The measured sections. Does not wait.
  const TimedSections& sections() const noexcept { return sections_; }
  std::int64_t pending() const noexcept { return static_cast<std::int64_t>(pending_.size()); }
  std::int64_t lost() const noexcept { return lost_; }  ///< device times that were dropped
  /// Reads the device times of finished intervals, in order.
  void collect();

  /// A table with name, count, and mean host and device milliseconds of every section, the sections of steps first.
  /// Waits for the device.
  std::string report();

  /// Resets all sections. Running timers continue.
  void reset();

 private:
  friend class PerfTimer;
  struct Pending {
    TimedSection* section;
    DeviceClock::Mark begin;
    DeviceClock::Mark end;
  };
  TimedSection& section(std::string_view name);
  void await_device(Pending interval);

  std::unique_ptr<DeviceClock> device_;
  TimeFunction clock_;
  TimedSections sections_;
  std::deque<Pending> pending_;
  std::int64_t lost_ = 0;
};

/// Measures one section: start, stop, record. Timers with the same name add to the same section.
class PerfTimer {
 public:
  /// @param stats  outlives the timer; null = the timer has no effect
  PerfTimer(std::string_view name, PerfStats* stats);

  /// A running timer keeps its start time.
  void start();
  /// Has no effect unless the timer is running.
  void stop();
  bool is_running() const noexcept { return is_running_; }
  /// Adds the stopped interval to the section, once.
  /// @throws std::logic_error  the timer is running, or has no interval
  void record();

 private:
  PerfStats* stats_;
  PerfStats::TimedSection* section_ = nullptr;
  bool is_running_ = false;
  bool has_interval_ = false;
  double begin_s_ = 0;
  double end_s_ = 0;
  DeviceClock::Mark device_begin_;
  DeviceClock::Mark device_end_;
};

/// Measures the time from construction to destruction, except if an exception ends the scope.
class PerfScope {
 public:
  PerfScope(std::string_view name, PerfStats* stats);
  ~PerfScope();
  PerfScope(const PerfScope&) = delete;
  PerfScope& operator=(const PerfScope&) = delete;

 private:
  PerfTimer timer_;
  int exceptions_;
};

}  // namespace lockstep::engine
