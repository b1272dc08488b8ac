// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/communicator.hpp>
#include <lockstep/parallel/ddp_report.hpp>

#include <chrono>
#include <cstddef>
#include <vector>

#include "parallel/reducers/bucket_plan.hpp"

namespace lockstep::parallel {

/// Notes when the parts of a step happen on this rank, and keeps the latest steps.
///
/// The wrapper, the reducer and the parameter store notify it of their work, each through a pointer that is null
/// without a report. Steps that go another way than train_step are not kept.
class StepRecorder {
 public:
  /// These are reduced from now on; what was noted of others is forgotten.
  void set_buckets(const std::vector<Bucket>& buckets);

  void micro_batch_begins();
  void micro_batch_ends(bool completes_step);
  void drop_step() { is_open_ = false; }

  void bucket_ready(std::size_t b) { current_.buckets[b].ready = now(); }
  void bucket_launched(std::size_t b);
  void backward_ends() { current_.backward_end = now(); }
  void wait_begins(std::size_t b) { current_.buckets[b].wait_begin = now(); }
  void wait_ends(std::size_t b);

  /// Pieces of parameters follow, each reduced before it begins.
  void visits_begin() { last_ = now(); }
  void piece_begins(std::size_t parameter);
  void piece_ends();

  /// While one lives, this rank waits for others. Does nothing without a recorder.
  class Meeting {
   public:
    explicit Meeting(StepRecorder* recorder) : recorder_(recorder) {
      if (recorder_ != nullptr) begin_ = recorder_->now();
    }
    ~Meeting() {
      if (recorder_ != nullptr) recorder_->add_meeting(begin_);
    }
    Meeting(const Meeting&) = delete;
    Meeting& operator=(const Meeting&) = delete;

   private:
    StepRecorder* recorder_;
    double begin_ = 0;
  };

  /// Collective: gathers what every rank has kept.
  DdpReport report(const mpi::Communicator& world) const;

 private:
  using Clock = std::chrono::steady_clock;

  /// Seconds since the step began.
  double now() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  void add_meeting(double begin);
  void keep();
  StepTimeline median_step() const;

  std::vector<std::size_t> bucket_of_;  // by parameter
  StepTimeline current_;
  BucketTimes* visited_ = nullptr;  // the bucket of the piece at hand
  double last_ = 0;                 // moment when the last piece ended
  bool is_open_ = false;            // between the first micro_batch of a step and its last
  Clock::time_point begin_;         // of the step, moved on by what lay between its micro_batches
  Clock::time_point paused_;
  std::vector<StepTimeline> kept_;  // the latest
  std::size_t oldest_ = 0;          // of them, once there is room for no more
  std::size_t steps_ = 0;           // in all
};

}  // namespace lockstep::parallel
