// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/communicator.hpp>
#include <lockstep/parallel/ddp_report.hpp>

#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

#include "core/text/duration.hpp"
#include "parallel/store/bucket_plan.hpp"

namespace c10 {
struct Device;
}

namespace lockstep::parallel {

/// Marks in the work of a device. The time of a mark is known when the device has passed it.
class StreamMarks {
 public:
  using StreamMark = std::shared_ptr<void>;

  virtual ~StreamMarks() = default;
  /// Puts a mark behind all work that the current stream of this thread has so far.
  virtual StreamMark mark() = 0;
  /// Whether the device has passed it. Does not wait.
  virtual bool is_over(const StreamMark& mark) const = 0;
  /// Both marks are over.
  virtual double seconds_between(const StreamMark& begin, const StreamMark& end) const = 0;
  /// Has the host wait until the device has passed it.
  virtual void wait(const StreamMark& mark) const = 0;
};

/// @return  null for the CPU
std::unique_ptr<StreamMarks> make_stream_marks(const c10::Device& device);

/// The points of a step between which a GPU works or waits; begin and pause are those of each micro_batch.
enum class StepPoint { begin, pause, backward_end, ready, launched, wait_begin, wait_end, meeting_begin, meeting_end };

struct TimedPoint {
  StepPoint point = StepPoint::begin;
  std::size_t bucket = 0;  ///< the bucket of ready, launched, wait_begin and wait_end
  double seconds = 0;      ///< since the first point
};

/// The step of these points, which are in the order of their times.
/// @param buckets  number of buckets
StepTimeline timeline_of(const std::vector<TimedPoint>& points, std::size_t buckets);

/// Notes when the parts of a step happen on this rank, and keeps the latest steps.
///
/// The wrapper, the reducer and the parameter store notify it of their work, each through a pointer that is null
/// without a report. Steps that go another way than train_step are not kept. On a GPU, each notification puts a mark
/// into the current stream; the marks of a step are read in a later one, when the GPU has passed them.
class StepRecorder {
 public:
  /// @param device  null = the times are those of the host
  explicit StepRecorder(std::unique_ptr<StreamMarks> device = nullptr) : device_(std::move(device)) {}

  /// These are reduced from now on; what was noted of others is forgotten.
  void set_buckets(const std::vector<Bucket>& buckets);

  void micro_batch_begins();
  void micro_batch_ends(bool completes_step);
  void drop_step() { is_open_ = false; }

  /// Notes a point of the step. A mark that fails is a failure of the GPU, which its next operation reports.
  void note(StepPoint point, std::size_t bucket = 0) noexcept;

  /// Pieces of parameters follow, each reduced before it begins.
  void visits_begin() { last_ = now(); }
  void piece_begins(std::size_t parameter);
  void piece_ends();

  /// While one lives, this rank waits for others. Does nothing without a recorder.
  class Meeting {
   public:
    explicit Meeting(StepRecorder* recorder) : recorder_(recorder) {
      if (recorder_ != nullptr) recorder_->note(StepPoint::meeting_begin);
    }
    ~Meeting() {
      if (recorder_ != nullptr) recorder_->note(StepPoint::meeting_end);
    }
    Meeting(const Meeting&) = delete;
    Meeting& operator=(const Meeting&) = delete;

   private:
    StepRecorder* recorder_;
  };

  /// Collective: gathers what every rank has kept.
  DdpReport report(const mpi::Communicator& world);

 private:
  /// Seconds since the step began, without the pauses between its micro_batches.
  double now() const { return std::chrono::duration<double>(SteadyClock::now() - begin_ - pauses_).count(); }
  /// The visits of one bucket, see BucketTimes.
  struct VisitTimes {
    double begin = 0;
    double end = 0;
    double transfer = 0;
    double update = 0;
  };
  struct MarkedPoint {
    StepPoint point;
    std::size_t bucket;
    StreamMarks::StreamMark mark;
  };
  using MarkedStep = std::vector<MarkedPoint>;

  void keep(const StepTimeline& step);
  void await_device();
  void collect();
  StepTimeline host_timeline() const;
  StepTimeline median_step() const;

  std::vector<std::size_t> bucket_of_;  // bucket of each parameter
  std::vector<VisitTimes> visits_;      // visits of each bucket
  VisitTimes* visited_ = nullptr;       // those of the bucket of the piece at hand
  double last_ = 0;                     // moment when the last piece ended
  bool is_open_ = false;                // true between the first micro_batch of a step and its last
  std::vector<TimedPoint> points_;      // points of the step at hand, if it is of the host
  SteadyClock::time_point begin_;       // start of the step
  SteadyClock::duration pauses_{};      // time spent between its micro_batches
  SteadyClock::time_point paused_;
  std::vector<StepTimeline> kept_;  // the latest
  std::size_t oldest_ = 0;          // index of the oldest one, once kept_ is full
  std::size_t steps_ = 0;           // number of all steps
  std::unique_ptr<StreamMarks> device_;
  MarkedStep marked_;               // the step at hand
  bool has_all_marks_ = true;       // the same step
  std::deque<MarkedStep> pending_;  // steps that the device has perhaps not done
};

}  // namespace lockstep::parallel
