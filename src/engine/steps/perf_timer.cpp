// SPDX-License-Identifier: BSD-3-Clause
#include "engine/steps/perf_timer.hpp"

#include <lockstep/log/log.hpp>

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <stdexcept>
#include <utility>
#include <vector>

namespace lockstep::engine {

namespace {

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Through LibTorch's own seam for devices, so that nothing of CUDA is linked.
class StreamClock : public DeviceClock {
 public:
  explicit StreamClock(const c10::Device& device) : device_(device), guard_(device.type()) {}

  Mark mark() override {
    auto event = std::make_shared<c10::Event>(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
    event->record(guard_.getStream(device_));
    return event;
  }
  bool is_over(const Mark& mark) const override { return event_of(mark).query(); }
  double ms_between(const Mark& begin, const Mark& end) const override {
    return event_of(begin).elapsedTime(event_of(end));
  }
  void wait() const override { guard_.synchronizeDevice(device_.index()); }

 private:
  static const c10::Event& event_of(const Mark& mark) { return *static_cast<const c10::Event*>(mark.get()); }

  c10::Device device_;
  c10::impl::VirtualGuardImpl guard_;
};

/// Sections of the step by their place in it, then the others by name.
std::vector<std::string> names_in_order(const PerfStats::TimedSections& sections) {
  std::vector<std::string> names;
  for (const std::string_view name : kStepSections) {
    if (sections.contains(name)) names.emplace_back(name);
  }
  for (const auto& [name, section] : sections) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  std::erase_if(names, [&](const std::string& name) { return sections.find(name)->second.host_ms.count() == 0; });
  return names;
}

}  // namespace

void PerfMetric::add(double value) {
  last_ = value;
  smoothed_ = count_ == 0 ? value : kNewWeight * value + (1 - kNewWeight) * smoothed_;
  sum_ += value;
  ++count_;
}

std::unique_ptr<DeviceClock> make_device_clock(const c10::Device& device) {
  return device.is_cpu() ? nullptr : std::make_unique<StreamClock>(device);
}

PerfStats::PerfStats(std::unique_ptr<DeviceClock> device, TimeFunction clock)
    : device_(std::move(device)), clock_(clock ? std::move(clock) : steady_seconds) {}

PerfStats::TimedSection& PerfStats::section(std::string_view name) {
  const auto found = sections_.find(name);
  return found != sections_.end() ? found->second : sections_[std::string(name)];
}

void PerfStats::await_device(Pending interval) {
  collect();
  if (pending_.size() < kMaxPending) return pending_.push_back(std::move(interval));
  if (lost_++ == 0) {
    log::error("times: the device is " + std::to_string(kMaxPending) +
               " intervals behind; the device times of the next ones are lost");
  }
}

void PerfStats::collect() {
  while (!pending_.empty() && device_->is_over(pending_.front().end)) {
    const Pending& first = pending_.front();
    first.section->device_ms.add(device_->ms_between(first.begin, first.end));
    pending_.pop_front();
  }
}

std::string PerfStats::report() {
  if (device_) {
    device_->wait();
    collect();
  }
  const std::vector<std::string> names = names_in_order(sections_);
  if (names.empty()) return "no section was timed\n";
  std::size_t width = std::string_view("section").size();
  for (const std::string& name : names) width = std::max(width, name.size());
  std::string text = fmt::format("{:<{}} {:>8} {:>10} {:>10}\n", "section", width, "count", "host ms", "device ms");
  for (const std::string& name : names) {
    const TimedSection& section = sections_.find(name)->second;
    const bool has_device = section.device_ms.count() > 0;
    const std::string device = has_device ? fmt::format("{:.2f}", section.device_ms.average()) : "-";
    text += fmt::format("{:<{}} {:>8} {:>10.2f} {:>10}\n", name, width, section.host_ms.count(),
                        section.host_ms.average(), device);
  }
  return text;
}

void PerfStats::reset() {
  for (auto& [name, section] : sections_) section = {};
  pending_.clear();
  lost_ = 0;
}

PerfTimer::PerfTimer(std::string_view name, PerfStats* stats)
    : stats_(stats), section_(stats == nullptr ? nullptr : &stats->section(name)) {}

void PerfTimer::start() {
  if (stats_ == nullptr || is_running_) return;
  is_running_ = true;
  has_interval_ = false;
  if (stats_->device_) device_begin_ = stats_->device_->mark();
  begin_s_ = stats_->clock_();
}

void PerfTimer::stop() {
  if (!is_running_) return;
  end_s_ = stats_->clock_();
  if (stats_->device_) device_end_ = stats_->device_->mark();
  is_running_ = false;
  has_interval_ = true;
}

void PerfTimer::record() {
  if (stats_ == nullptr) return;
  if (is_running_) throw std::logic_error("a running timer cannot be recorded; stop it first");
  if (!has_interval_) throw std::logic_error("a timer that was not started and stopped cannot be recorded");
  has_interval_ = false;
  section_->host_ms.add((end_s_ - begin_s_) * 1000);
  if (!stats_->device_) return;
  stats_->await_device({.section = section_, .begin = std::move(device_begin_), .end = std::move(device_end_)});
}

PerfScope::PerfScope(std::string_view name, PerfStats* stats)
    : timer_(name, stats), exceptions_(std::uncaught_exceptions()) {
  timer_.start();
}

PerfScope::~PerfScope() {
  timer_.stop();
  if (std::uncaught_exceptions() > exceptions_) return;
  timer_.record();
}

}  // namespace lockstep::engine
