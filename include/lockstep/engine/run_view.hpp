// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/engine/event_storage.hpp>
#include <lockstep/engine/hook.hpp>

#include <cstdint>
#include <exception>
#include <utility>

namespace c10 {
struct Device;
}
namespace lockstep::mpi {
class Communicator;
class Collectives;
}  // namespace lockstep::mpi
namespace lockstep::optim {
class ModelAverage;
class OptimWrapper;
}  // namespace lockstep::optim
namespace lockstep::parallel {
class DistributedDataParallel;
}

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
  /// Makes the current step, or between two steps the last one, the last seed of the run: Outcome::done. To be called
  /// on every rank alike, because of what all of them know (Measured), in any method of a hook. Nothing is agreed on.
  void finish() noexcept { is_finish_requested_ = true; }
  /// This rank cannot continue: at the end of the current step, every rank throws the error of the lowest rank that has
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

class HookList;
class PerfStats;
class RecordReports;
class RunData;
class ScheduleControl;
struct RunOrigin;
struct Saves;

/// Which numbers forwards draw.
struct DrawSeeds {
  std::uint64_t seed = 0;  ///< seed of the run
  std::uint64_t rank = 0;  ///< with run.diff_rank_seed this rank, else 0
};

/// What a hook sees of a run. It is the same object during the whole run. The header of each type that is only named
/// here: include/lockstep/engine/run_data.hpp (RunData), schedule_control.hpp, perf_timer.hpp, and so on.
struct RunView {
  const Progress& progress;
  const RunData& data;  ///< splits, sampler, and how a global batch is divided

  const mpi::Communicator& world;  ///< all ranks
  mpi::Collectives& collectives;
  parallel::DistributedDataParallel& wrapper;  ///< around the model
  optim::OptimWrapper& optimizer;
  optim::ModelAverage* average;  ///< of past weights; null = none
  const c10::Device& device;     ///< where this rank computes
  DrawSeeds draws;

  ScheduleControl& schedule;
  EventStorage& events;      ///< what hooks and steps measure
  PerfStats* perf;           ///< the times of the sections of steps; null = they are not measured
  RunRequests& requests;     ///< stop, save, end, finish, fail
  Saves& saves;              ///< what has been committed
  RunOrigin& origin;         ///< seed of the run and of this start
  const Measured& measured;  ///< of the last step at which there was an evaluation
  RecordReports& reports;    ///< see `report`
  HookList& hooks;           ///< see `notify` and the two functions below it

  /// Gives a record to every reporter, on rank 0. Every rank remembers records of kind "eval": see `measured`.
  void report(const Record& record);
  /// Calls on_forward, on_loss, on_backward or on_update of every hook.
  void notify(StepEvent event, const LastBatch& last);
  /// Calls before_evaluation of every hook.
  void begin_evaluation();
  /// Calls after_evaluation of every hook.
  void end_evaluation(const Measured& results);
};

}  // namespace lockstep::engine
