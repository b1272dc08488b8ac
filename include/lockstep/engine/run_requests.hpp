// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <exception>
#include <utility>

namespace lockstep::engine {

/// What a rank asks of the loop. The loop agrees on these with the current step, so that all ranks do the same.
/// Not collective; used by one thread, except `stop`.
class RunRequests {
 public:
  /// Ends the run after the current step, to be continued: Outcome::stopped. Any rank may ask, and a signal handler.
  /// It is one request of the whole process, for all runs in it.
  static void stop() noexcept;
  /// Whether this rank has asked for that.
  static bool is_stop_requested() noexcept;

  /// The report of the coming step says is_save_due. Rank 0 decides; ignored on other ranks.
  void save() noexcept { is_save_requested_ = true; }
  /// Outcome::ended after the current step. Rank 0 decides; ignored on other ranks. Stronger than `stop`.
  void end() noexcept { is_end_requested_ = true; }
  /// Makes the current step, or between two steps the last one, the last of the run: Outcome::done. To be called on
  /// every rank alike, because of what all of them know (Measured), in any method of a hook. Nothing is agreed on.
  void finish() noexcept { is_finish_requested_ = true; }
  /// This rank cannot go on: at the end of the current step, every rank throws the error of the lowest rank that has
  /// one. The first error of a rank counts.
  void fail(std::exception_ptr error) {
    if (!failure_) failure_ = std::move(error);
  }

  bool is_save_requested() const noexcept { return is_save_requested_; }
  bool is_end_requested() const noexcept { return is_end_requested_; }
  bool is_finish_requested() const noexcept { return is_finish_requested_; }
  const std::exception_ptr& failure() const noexcept { return failure_; }
  /// The ranks have agreed on the save.
  void clear_save() noexcept { is_save_requested_ = false; }

 private:
  bool is_save_requested_ = false;
  bool is_end_requested_ = false;
  bool is_finish_requested_ = false;
  std::exception_ptr failure_;
};

}  // namespace lockstep::engine
