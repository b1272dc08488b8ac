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

// Where the time of a step goes, section by section: the host's always, and a GPU's where there is one.
namespace lockstep::engine {

/// Sections of the standard step, in the order of the step; the first contains all others.
inline constexpr std::array<std::string_view, 8> kStepSections = {
    "train_step_total", "read_sample",   "forward",  "loss_compute",
    "loss_all_reduce",  "meters_update", "backward", "optimizer_step"};

/// A series of times, as far as one wants to remember it.
class PerfMetric {
 public:
  /// What a new value weighs in the smoothed one.
  static constexpr double kNewWeight = 0.1;

  void add(double value);

  double last() const noexcept { return last_; }
  /// 0.1 of the newest and 0.9 of what was; the first value as it is.
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

/// Points in a device's work, whose distance in time it knows once it has reached them. Used by one thread at a time.
class DeviceClock {
 public:
  using Mark = std::shared_ptr<const void>;

  virtual ~DeviceClock() = default;
  /// Behind all that the current stream has so far. Does not wait.
  virtual Mark mark() = 0;
  virtual bool is_over(const Mark& mark) const = 0;
  /// Milliseconds from one to the other; both are over.
  virtual double ms_between(const Mark& begin, const Mark& end) const = 0;
  /// Returns when the device has done all that it was given.
  virtual void wait() const = 0;
};

/// @return  null for the CPU, which needs none
std::unique_ptr<DeviceClock> make_device_clock(const c10::Device& device);

/// The times of sections by their names. Used by one thread at a time; not collective. A timer costs two looks at the
/// clock and, on a GPU, two events.
class PerfStats {
 public:
  struct Section {
    PerfMetric host_ms;
    PerfMetric device_ms;  ///< of the intervals that the device has finished
  };
  using Sections = std::map<std::string, Section, std::less<>>;
  /// Seconds from any fixed moment on.
  using Clock = std::function<double()>;

  /// Intervals that may wait for the device; beyond, their device times are lost.
  static constexpr std::size_t kMaxPending = 1000;

  /// @param device  null = host times only
  /// @param clock   of the host; default: the steady one
  explicit PerfStats(std::unique_ptr<DeviceClock> device = nullptr, Clock clock = {});

  /// What was measured; reading it waits for nobody.
  const Sections& sections() const noexcept { return sections_; }
  std::int64_t pending() const noexcept { return static_cast<std::int64_t>(pending_.size()); }
  std::int64_t lost() const noexcept { return lost_; }  ///< device times that were dropped
  /// Takes the device times that are there by now, in the order of their intervals.
  void collect();

  /// Name, count and mean host and device milliseconds of every section that was timed, one line each, the steps'
  /// sections first and in their order. Waits for the device.
  std::string report();

  /// Begins again, as for a new phase. Timers that are running continue.
  void reset();

 private:
  friend class PerfTimer;
  struct Pending {
    Section* section;
    DeviceClock::Mark begin;
    DeviceClock::Mark end;
  };
  Section& section(std::string_view name);
  void await_device(Pending interval);

  std::unique_ptr<DeviceClock> device_;
  Clock clock_;
  Sections sections_;
  std::deque<Pending> pending_;
  std::int64_t lost_ = 0;
};

/// Measures one section manually: start, stop, record. Several of one name add to the same section.
class PerfTimer {
 public:
  /// @param stats  outlives the timer; null = everything here does nothing
  PerfTimer(std::string_view name, PerfStats* stats);

  /// A timer that is running already keeps its beginning.
  void start();
  /// Does nothing unless it is running.
  void stop();
  bool is_running() const noexcept { return is_running_; }
  /// Adds the stopped interval to the section, once.
  /// @throws std::logic_error  it is running, or there is no interval
  void record();

 private:
  PerfStats* stats_;
  PerfStats::Section* section_ = nullptr;
  bool is_running_ = false;
  bool has_interval_ = false;
  double begin_s_ = 0;
  double end_s_ = 0;
  DeviceClock::Mark device_begin_;
  DeviceClock::Mark device_end_;
};

/// Measures from its construction to the end of its scope, unless that ends by an exception.
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
