// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/engine/event_storage.hpp>
#include <lockstep/engine/hook.hpp>
#include <lockstep/engine/run_requests.hpp>

#include <cstdint>

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

class HookList;
class PerfStats;
class RecordReports;
class RunData;
class ScheduleControl;
struct RunOrigin;
struct Saves;

/// Which numbers forwards draw.
struct DrawSeeds {
  std::uint64_t seed = 0;  ///< of the run
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
  optim::ModelAverage* average;  ///< of past weights; null: none
  const c10::Device& device;     ///< where this rank computes
  DrawSeeds draws;

  ScheduleControl& schedule;
  EventStorage& events;      ///< what hooks and steps measure
  PerfStats* perf;           ///< the times of the sections of steps; null: they are not measured
  RunRequests& requests;     ///< stop, save, end, finish, fail
  Saves& saves;              ///< what has been committed
  RunOrigin& origin;         ///< of the run and of this start
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
