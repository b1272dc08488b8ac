// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/ddp/step_recorder.hpp"

#include <algorithm>
#include <cstring>
#include <string>

namespace lockstep::parallel {

namespace {

constexpr std::size_t kWarmUpSteps = 3;
constexpr std::size_t kMaxKept = 256;

/// A timeline as numbers, and back. All ranks have as many buckets.
std::string pack(const StepTimeline& step) {
  std::vector<double> numbers = {step.backward_end, step.meeting_begin, step.meeting_end, step.end, step.meetings};
  for (const BucketTimes& b : step.buckets) {
    numbers.insert(numbers.end(),
                   {b.ready, b.launched, b.wait_begin, b.wait_end, b.visit_begin, b.visit_end, b.transfer, b.update});
  }
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(double)};
}

StepTimeline unpack(const std::string& text) {
  std::vector<double> numbers(text.size() / sizeof(double));
  std::memcpy(numbers.data(), text.data(), text.size());
  StepTimeline step{.backward_end = numbers[0],
                    .meeting_begin = numbers[1],
                    .meeting_end = numbers[2],
                    .end = numbers[3],
                    .meetings = numbers[4],
                    .buckets = {}};
  for (std::size_t i = 5; i < numbers.size(); i += 8) {
    step.buckets.push_back({.ready = numbers[i],
                            .launched = numbers[i + 1],
                            .wait_begin = numbers[i + 2],
                            .wait_end = numbers[i + 3],
                            .visit_begin = numbers[i + 4],
                            .visit_end = numbers[i + 5],
                            .transfer = numbers[i + 6],
                            .update = numbers[i + 7]});
  }
  return step;
}

}  // namespace

void StepRecorder::set_buckets(const std::vector<Bucket>& buckets) {
  bucket_of_.clear();
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    for (const Slot& slot : buckets[b].slots) {
      if (slot.parameter >= bucket_of_.size()) bucket_of_.resize(slot.parameter + 1);
      bucket_of_[slot.parameter] = b;
    }
  }
  current_.buckets.assign(buckets.size(), {});
  kept_.clear();
  oldest_ = 0;
  kept_.reserve(kMaxKept);
}

void StepRecorder::micro_batch_begins() {
  const Clock::time_point begin = Clock::now();
  if (is_open_) {
    begin_ += begin - paused_;
    return;
  }
  is_open_ = true;
  begin_ = begin;
  std::vector<BucketTimes> buckets = std::move(current_.buckets);
  std::fill(buckets.begin(), buckets.end(), BucketTimes{});
  current_ = {};
  current_.buckets = std::move(buckets);
}

void StepRecorder::micro_batch_ends(bool completes_step) {
  paused_ = Clock::now();
  if (!completes_step) return;
  is_open_ = false;
  current_.end = std::chrono::duration<double>(paused_ - begin_).count();
  if (++steps_ > kWarmUpSteps) keep();
}

void StepRecorder::keep() {
  if (kept_.size() < kMaxKept) return kept_.push_back(current_);
  kept_[oldest_] = current_;
  oldest_ = (oldest_ + 1) % kMaxKept;
}

void StepRecorder::bucket_launched(std::size_t b) {
  BucketTimes& times = current_.buckets[b];
  times.launched = now();
  if (times.ready == 0) times.ready = times.launched;  // nothing was waited for: it holds no gradients
}

void StepRecorder::wait_ends(std::size_t b) {
  BucketTimes& times = current_.buckets[b];
  times.wait_end = now();
  times.visit_begin = times.wait_end;
  times.visit_end = times.wait_end;
}

void StepRecorder::piece_begins(std::size_t parameter) {
  visited_ = &current_.buckets[bucket_of_[parameter]];
  if (visited_->visit_end == visited_->wait_end) visited_->visit_begin = last_;
  const double begin = now();
  visited_->transfer += begin - last_;
  last_ = begin;
}

void StepRecorder::piece_ends() {
  const double end = now();
  visited_->update += end - last_;
  visited_->visit_end = end;
  last_ = end;
}

void StepRecorder::add_meeting(double begin) {
  current_.meeting_begin = begin;
  current_.meeting_end = now();
  current_.meetings += current_.meeting_end - begin;
}

StepTimeline StepRecorder::median_step() const {
  if (kept_.empty()) return {};
  std::vector<const StepTimeline*> by_length;
  for (const StepTimeline& step : kept_) by_length.push_back(&step);
  const auto middle = by_length.begin() + static_cast<std::ptrdiff_t>(by_length.size() / 2);
  std::nth_element(by_length.begin(), middle, by_length.end(),
                   [](const StepTimeline* a, const StepTimeline* b) { return a->end < b->end; });
  return **middle;
}

DdpReport StepRecorder::report(const mpi::Communicator& world) const {
  DdpReport report;
  report.steps = world.all_reduce(static_cast<std::int64_t>(kept_.size()), mpi::Op::min);
  for (const std::string& text : world.all_gather(pack(median_step()))) report.ranks.push_back(unpack(text));
  return report;
}

}  // namespace lockstep::parallel
