// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/store/step_recorder.hpp"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <string>
#include <type_traits>
#include <utility>

namespace lockstep::parallel {

namespace {

/// Through LibTorch's interface for all devices, so that nothing of CUDA is linked.
class EventMarks final : public StreamMarks {
 public:
  explicit EventMarks(const c10::Device& device) : device_(device), guard_(device.type()) {}

  StreamMark mark() override {
    const auto event = std::make_shared<c10::Event>(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
    event->record(guard_.getStream(device_));
    return event;
  }
  bool is_over(const StreamMark& mark) const override { return event_of(mark).query(); }
  double seconds_between(const StreamMark& begin, const StreamMark& end) const override {
    return event_of(begin).elapsedTime(event_of(end)) / 1000;
  }
  void wait(const StreamMark& mark) const override { event_of(mark).synchronize(); }

 private:
  static const c10::Event& event_of(const StreamMark& mark) { return *static_cast<const c10::Event*>(mark.get()); }

  c10::Device device_;
  c10::impl::VirtualGuardImpl guard_;
};

constexpr std::size_t kWarmUpSteps = 3;
constexpr std::size_t kMaxKept = 256;
constexpr std::size_t kMaxPending = 16;
using StepNumbers = std::array<double, 6>;

static_assert(std::is_trivially_copyable_v<BucketTimes>);

/// A timeline as text, and back. All ranks have as many buckets.
std::string pack(const StepTimeline& step) {
  const StepNumbers numbers = {step.backward_end, step.meeting_begin, step.meeting_end,
                               step.end,          step.meetings,      step.undivided_update};
  std::string text(reinterpret_cast<const char*>(numbers.data()), sizeof(numbers));
  return text.append(reinterpret_cast<const char*>(step.buckets.data()), step.buckets.size() * sizeof(BucketTimes));
}

StepTimeline unpack(const std::string& text) {
  StepNumbers numbers{};
  std::memcpy(numbers.data(), text.data(), sizeof(numbers));
  StepTimeline step{.backward_end = numbers[0],
                    .meeting_begin = numbers[1],
                    .meeting_end = numbers[2],
                    .end = numbers[3],
                    .meetings = numbers[4],
                    .undivided_update = numbers[5],
                    .buckets = std::vector<BucketTimes>((text.size() - sizeof(numbers)) / sizeof(BucketTimes))};
  std::memcpy(step.buckets.data(), text.data() + sizeof(numbers), text.size() - sizeof(numbers));
  return step;
}

}  // namespace

std::unique_ptr<StreamMarks> make_stream_marks(const c10::Device& device) {
  if (device.is_cpu()) return nullptr;
  return std::make_unique<EventMarks>(device);
}

StepTimeline timeline_of(const std::vector<TimedPoint>& points, std::size_t buckets) {
  StepTimeline step;
  step.buckets.resize(buckets);
  double pauses = 0;  // those between micro_batches
  double pause_begin = 0;
  double update_begin = 0;
  double meetings_before_update = 0;
  for (const auto& [point, bucket, seconds] : points) {
    if (point == StepPoint::begin) pauses += seconds - pause_begin;
    const double now = seconds - pauses;
    switch (point) {
      case StepPoint::begin:
        break;
      case StepPoint::pause:
        pause_begin = seconds;
        step.end = now;
        break;
      case StepPoint::ready:
        step.buckets[bucket].ready = now;
        break;
      case StepPoint::launched:
        step.buckets[bucket].launched = now;
        if (step.buckets[bucket].ready == 0) step.buckets[bucket].ready = now;
        break;
      case StepPoint::wait_begin:
        step.buckets[bucket].wait_begin = now;
        break;
      case StepPoint::wait_end:
        step.buckets[bucket].wait_end = step.buckets[bucket].visit_begin = step.buckets[bucket].visit_end = now;
        update_begin = now;
        meetings_before_update = step.meetings;
        break;
      case StepPoint::backward_end:
        step.backward_end = update_begin = now;
        meetings_before_update = step.meetings;
        break;
      case StepPoint::meeting_begin:
        step.meeting_begin = now;
        break;
      case StepPoint::meeting_end:
        step.meeting_end = now;
        step.meetings += now - step.meeting_begin;
        break;
    }
  }
  if (update_begin > 0) step.undivided_update = step.end - update_begin - (step.meetings - meetings_before_update);
  return step;
}

void StepRecorder::set_buckets(const std::vector<Bucket>& buckets) {
  bucket_of_.clear();
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    for (const Slot& slot : buckets[b].slots) {
      if (slot.parameter >= bucket_of_.size()) bucket_of_.resize(slot.parameter + 1);
      bucket_of_[slot.parameter] = b;
    }
  }
  visits_.assign(buckets.size(), {});
  kept_.clear();
  oldest_ = 0;
  kept_.reserve(kMaxKept);
  pending_.clear();
  points_.clear();
  marked_.clear();
  has_all_marks_ = false;  // the step at hand, if there is one, is not reported
}

void StepRecorder::micro_batch_begins() {
  const SteadyClock::time_point begin = SteadyClock::now();
  if (is_open_) {
    pauses_ += begin - paused_;
    return note(StepPoint::begin);
  }
  if (device_) collect();
  is_open_ = true;
  begin_ = begin;
  pauses_ = {};
  std::fill(visits_.begin(), visits_.end(), VisitTimes{});
  points_.clear();
  marked_.clear();
  has_all_marks_ = true;
  note(StepPoint::begin);
}

void StepRecorder::micro_batch_ends(bool completes_step) {
  note(StepPoint::pause);
  paused_ = SteadyClock::now();
  if (!completes_step) return;
  is_open_ = false;
  if (++steps_ <= kWarmUpSteps) return;
  if (device_) return await_device();
  if (has_all_marks_) keep(host_timeline());
}

/// The update is divided by the visits of buckets.
StepTimeline StepRecorder::host_timeline() const {
  StepTimeline step = timeline_of(points_, visits_.size());
  step.undivided_update = 0;
  for (std::size_t b = 0; b < visits_.size(); ++b) {
    const VisitTimes& visit = visits_[b];
    if (visit.end == 0) continue;
    step.buckets[b].visit_begin = visit.begin;
    step.buckets[b].visit_end = visit.end;
    step.buckets[b].transfer = visit.transfer;
    step.buckets[b].update = visit.update;
  }
  return step;
}

void StepRecorder::keep(const StepTimeline& step) {
  if (kept_.size() < kMaxKept) return kept_.push_back(step);
  kept_[oldest_] = step;
  oldest_ = (oldest_ + 1) % kMaxKept;
}

void StepRecorder::note(StepPoint point, std::size_t bucket) noexcept {
  if (!is_open_) return;
  try {
    if (device_) {
      marked_.push_back({point, bucket, device_->mark()});
    } else {
      points_.push_back({point, bucket, std::chrono::duration<double>(SteadyClock::now() - begin_).count()});
    }
  } catch (const std::exception&) {
    has_all_marks_ = false;
  }
}

void StepRecorder::await_device() {
  if (has_all_marks_ && pending_.size() < kMaxPending) pending_.push_back(std::move(marked_));
  marked_.clear();
}

/// Keeps the steps that the device has done.
void StepRecorder::collect() {
  while (!pending_.empty() && device_->is_over(pending_.front().back().mark)) {
    const MarkedStep& step = pending_.front();
    std::vector<TimedPoint> points;
    for (const auto& [point, bucket, mark] : step) {
      points.push_back({point, bucket, device_->seconds_between(step.front().mark, mark)});
    }
    keep(timeline_of(points, visits_.size()));
    pending_.pop_front();
  }
}

void StepRecorder::piece_begins(std::size_t parameter) {
  visited_ = &visits_[bucket_of_[parameter]];
  if (visited_->end == 0) visited_->begin = last_;
  const double begin = now();
  visited_->transfer += begin - last_;
  last_ = begin;
}

void StepRecorder::piece_ends() {
  visited_->end = now();
  visited_->update += visited_->end - last_;
  last_ = visited_->end;
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

DdpReport StepRecorder::report(const mpi::Communicator& world) {
  if (!pending_.empty()) device_->wait(pending_.back().back().mark);
  if (device_) collect();
  DdpReport report;
  report.is_of_gpu = device_ != nullptr;
  report.steps = world.all_reduce(static_cast<std::int64_t>(kept_.size()), mpi::Op::min);
  for (const std::string& text : world.all_gather(pack(median_step()))) report.ranks.push_back(unpack(text));
  return report;
}

}  // namespace lockstep::parallel
