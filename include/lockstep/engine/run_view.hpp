// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/data/sampler.hpp>
#include <lockstep/data/source.hpp>
#include <lockstep/engine/event_storage.hpp>
#include <lockstep/engine/hook.hpp>
#include <lockstep/schedule/schedule.hpp>

#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace c10 {
struct Device;
}
namespace lockstep::data {
class Mixing;
}
namespace lockstep::mpi {
class Communicator;
class Collectives;
}  // namespace lockstep::mpi
namespace lockstep::optim {
class ModelAverage;
class OptimWrapper;
class OptimWrapperDict;
struct ParamGroup;
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
  /// Sets is_evaluation_due in the report of the next step. Only rank 0; ignored on other ranks.
  void evaluate() noexcept { is_evaluation_requested_ = true; }
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
  bool is_evaluation_requested() const noexcept { return is_evaluation_requested_; }
  bool is_end_requested() const noexcept { return is_end_requested_; }
  bool is_finish_requested() const noexcept { return is_finish_requested_; }
  const std::exception_ptr& failure() const noexcept { return failure_; }
  /// Clears the requests for the step after the ranks have agreed on them.
  void clear_step_requests() noexcept {
    is_save_requested_ = false;
    is_evaluation_requested_ = false;
  }

 private:
  bool is_save_requested_ = false;
  bool is_evaluation_requested_ = false;
  bool is_end_requested_ = false;
  bool is_finish_requested_ = false;
  std::exception_ptr failure_;
};

class HookList;
class PerfStats;
class RecordReports;
struct RunOrigin;
struct Saves;

/// The division of a global batch among ranks, and on each rank among forward passes (micro-batches or lanes).
struct BatchLayout {
  std::int64_t global_batch_size = 0;  ///< samples per step over all ranks
  std::int64_t micro_batches = 1;      ///< forward passes of this rank per step; with lanes, the lanes of this rank
  std::int64_t micro_batch_size = 0;   ///< maximum number of samples per forward pass
  std::int64_t lanes = 0;              ///< lanes per step over all ranks; 0 = off
  std::int64_t first_lane = 0;         ///< first lane of this rank
  data::Share share = {};              ///< positions of this rank in a global batch

  /// The positions in a global batch of one forward pass of this rank.
  /// @param part  in [0, micro_batches)
  data::Share positions_of(std::int64_t part) const;
};

/// The data of a run: its splits, and the samples of each step.
class RunData {
 public:
  /// @param mixing      mixes the samples of training batches; null = they are not mixed
  /// @param processors  that this rank can use
  RunData(data::Splits splits, data::Sampler sampler, const BatchLayout& layout, data::LoaderOptions loader,
          std::shared_ptr<const data::Mixing> mixing = nullptr, int processors = 1)
      : splits_(std::move(splits)),
        sampler_(std::move(sampler)),
        layout_(layout),
        loader_(std::move(loader)),
        mixing_(std::move(mixing)),
        processors_(processors) {}

  const data::Splits& splits() const noexcept { return splits_; }
  /// The digest of the training data, which is computed once.
  std::uint64_t train_digest() const {
    if (!train_digest_) train_digest_ = splits_.train->digest();
    return *train_digest_;
  }
  const data::Sampler& sampler() const noexcept { return sampler_; }
  const BatchLayout& layout() const noexcept { return layout_; }
  int loader_threads() const noexcept { return loader_.workers; }  ///< loader threads on this rank
  int processors() const noexcept { return processors_; }          ///< that this rank can use

  /// The training samples of one micro-batch of this rank.
  /// @param position  number of steps since the start of the first epoch
  /// @param part      number of the micro-batch in the step, in [0, layout().micro_batches)
  std::vector<batch::Draw> draws_of(std::int64_t position, std::int64_t part) const;
  /// The samples that a loader reads for a mixed batch: the sample before the first one in the global batch, where the
  /// last one precedes the first, and then those of draws_of.
  std::vector<batch::Draw> draws_to_mix(std::int64_t position, std::int64_t part) const;
  /// Opens a loader of the remaining micro-batches of this rank.
  std::unique_ptr<data::Loader> open_loader(const Progress& progress) const;

 private:
  data::Splits splits_;
  mutable std::optional<std::uint64_t> train_digest_;
  data::Sampler sampler_;
  BatchLayout layout_;
  data::LoaderOptions loader_;
  std::shared_ptr<const data::Mixing> mixing_;
  int processors_;
};

/// The settings of section `sched`; its keys are schedule::sched_keys.
struct ScheduleSettings {
  std::vector<std::string> rules = {};
  std::string origin = "";  ///< origin of the rules, for messages

  static ScheduleSettings from(const Section& sched);
};

/// The schedule of a run: its rules, the length of the run, and the step at which the schedule started. Not collective;
/// every rank makes the same calls.
class ScheduleControl {
 public:
  /// @param curves  the available curves; outlives this object
  explicit ScheduleControl(ScheduleSettings settings, const std::vector<schedule::Curve>& curves)
      : settings_(std::move(settings)), curves_(&curves) {}

  /// The schedule; its steps are counted from begin().
  schedule::Schedule& schedule() noexcept { return schedule_; }
  /// The rules as configured.
  const std::vector<std::string>& rules() const noexcept { return settings_.rules; }
  /// The length of the run for the rules.
  const schedule::RunLength& length() const noexcept { return length_; }
  /// The step at which the schedule started: 0, unless a resumed run restarted it.
  std::int64_t begin() const noexcept { return begin_; }

  /// Applies the rules to a run of this length, minus the steps before begin(). The state of the rules is kept.
  /// @throws ConfigError  like schedule::parse
  void plan(const schedule::RunLength& run);
  /// Replaces the rules, for a run of that length.
  /// @throws ConfigError  like schedule::parse; the previous rules are then kept
  void follow(std::vector<std::string> rules, const schedule::RunLength& length);
  /// Counts steps from this step. Call `plan` afterwards.
  void restart_at(std::int64_t step) noexcept { begin_ = step; }
  /// The factor of the schedule on the learning rate of a group in the step after `step` updates.
  /// @param part  part of the parameters to which the group belongs
  double factor(std::int64_t step, const optim::ParamGroup& group, const std::string& part = {}) const;

 private:
  ScheduleSettings settings_;
  const std::vector<schedule::Curve>* curves_;
  schedule::Schedule schedule_;
  schedule::RunLength length_;
  std::int64_t begin_ = 0;
};

/// The seeds of random numbers in forward passes.
struct DrawSeeds {
  std::uint64_t seed = 0;  ///< seed of the run
  std::uint64_t rank = 0;  ///< this rank with run.diff_rank_seed, else 0
};

/// The view of a run for hooks. It is the same object during the whole run. A hook includes the headers of the types
/// that are only declared here, such as mpi/communicator.hpp.
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
  int roll_backs = 0;        ///< number of returns to a checkpoint since the start of this process

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
