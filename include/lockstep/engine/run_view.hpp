// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/engine/event_storage.hpp>
#include <lockstep/engine/hook.hpp>

#include <cstdint>
#include <exception>
#include <map>
#include <string>
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
class OptimWrapperDict;
}  // namespace lockstep::optim
namespace lockstep::parallel {
class DistributedDataParallel;
}

namespace lockstep::engine {

/// Requests of a rank to the training loop. The ranks agree on them in the current step, so that all ranks do the same.
/// Not collective. Not thread-safe, except `stop`.
class RunRequests {
 public:
  /// Ends the run after the current step with Outcome::stopped; it can be resumed. Can be called on any rank and in a
  /// signal handler. The request holds for all runs of the process.
  static void stop() noexcept;
  /// Whether this rank has requested a stop.
  static bool is_stop_requested() noexcept;

  /// Sets is_save_due in the report of the next step. Only rank 0; ignored on other ranks.
  void save() noexcept { is_save_requested_ = true; }
  /// Ends the run after the current step with Outcome::ended. Only rank 0; ignored on other ranks. Has priority over
  /// `stop`.
  void end() noexcept { is_end_requested_ = true; }
  /// Ends the run with Outcome::done after the current step (between steps: after the previous one). Call it on every
  /// rank, based on values that are equal on all ranks (Measured), in any method of a hook. There is no agreement.
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
  /// Clears the request after the ranks have agreed on it.
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

/// The seeds of random numbers in forward passes.
struct DrawSeeds {
  std::uint64_t seed = 0;  ///< seed of the run
  std::uint64_t rank = 0;  ///< this rank with run.diff_rank_seed, else 0
};

/// The view of a run for hooks. It is the same object during the whole run. Headers of the types that are only declared
/// here: include/lockstep/engine/run_data.hpp (RunData), schedule_control.hpp, perf_timer.hpp, and so on.
struct RunView {
  const Progress& progress;
  const RunData& data;  ///< splits, sampler, and division of a global batch

  const mpi::Communicator& world;  ///< all ranks
  mpi::Collectives& collectives;
  parallel::DistributedDataParallel& wrapper;  ///< wrapper of the model
  optim::OptimWrapper& optimizer;              ///< if there are several parts, the optimizer of the first by name
  optim::OptimWrapperDict& parts;              ///< the optimizer of each part; without parts, one that is named ""
  optim::ModelAverage* average;                ///< average of the weights; null = none
  const c10::Device& device;                   ///< device of this rank
  DrawSeeds draws;

  ScheduleControl& schedule;
  EventStorage& events;   ///< measurements of hooks and steps
  PerfStats* perf;        ///< times of the sections of steps; null = not measured
  RunRequests& requests;  ///< stop, save, end, finish, fail
  Saves& saves;           ///< committed checkpoints
  RunOrigin& origin;      ///< origin of the run and of this start
  /// Data of the user by name: the values of `run.extra`, and those that hooks add, equal on every rank. In every
  /// checkpoint. A resumed run gets them back, except those that its configuration sets.
  std::map<std::string, std::string>& extra;
  const Measured& measured;  ///< values of the latest evaluation
  RecordReports& reports;    ///< see `report`
  HookList& hooks;           ///< see `notify` and the two functions below it

  /// Passes a record to every reporter, on rank 0. Every rank stores records of kind "eval", see `measured`.
  void report(const Record& record);
  /// Calls on_forward, on_loss, on_backward or on_update of every hook.
  void notify(StepEvent event, const LastBatch& last);
  /// Calls before_evaluation of every hook.
  void begin_evaluation();
  /// Calls after_evaluation of every hook.
  void end_evaluation(const Measured& results);
};

}  // namespace lockstep::engine
