// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/data/source.hpp>
#include <lockstep/engine/event_storage.hpp>
#include <lockstep/engine/hook.hpp>
#include <lockstep/engine/run_view.hpp>
#include <lockstep/engine/train_step.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/saving/saves.hpp"
#include "engine/settings/builtin_registry.hpp"
#include "engine/settings/train_settings.hpp"
#include "engine/setup/composition.hpp"
#include "engine/setup/resources.hpp"
#include "engine/steps/perf_timer.hpp"
#include "engine/steps/rows.hpp"

namespace lockstep::engine {

/// The origin of a run. It is stored in every checkpoint for information.
struct RunOrigin {
  std::string run_id = {};            ///< 16 hexadecimal digits that no other run has
  std::string environment_json = {};  ///< environment of this start, as JSON
  std::string parent_digest = {};     ///< digest of the checkpoint that this start resumed from; empty = none
  std::string lineage = {};           ///< a line for each checkpoint that the run was resumed from, oldest first
};

/// The receivers of the records of a run.
class RecordReports {
 public:
  void add(Reporter reporter) { reporters_.push_back(std::move(reporter)); }
  /// Every rank checks the names and remembers the numbers of records of kind "eval"; every reporter of rank 0 receives
  /// the record.
  /// @param step  after which it is reported
  /// @throws ConfigError  two values have the same name, in this record or in records of two kinds
  void report(const Record& record, std::int64_t step, bool is_root);
  /// The values of the latest evaluation.
  const Measured& measured() const noexcept { return measured_; }

 private:
  void require_own_names(const Record& record);

  std::vector<Reporter> reporters_;
  std::map<std::string, std::string> kinds_;  // the kind of record that has a value, by the value's name
  Measured measured_;
};

/// The hooks of a run, in the order in which they are called: by priority, then by registration.
class HookList {
 public:
  /// @throws std::logic_error  another hook has a state of the same name
  void add(PrioritizedHook added);

  /// Calls one method of every hook, such as `each(&Hook::before_step, run)`.
  template <class... Parameters>
  void each(void (Hook::*method)(Parameters...), std::type_identity_t<Parameters>... arguments) const {
    for (const auto& [priority, hook] : hooks_) (hook.get()->*method)(arguments...);
  }
  /// Calls the method of every hook that belongs to the event.
  void notify(StepEvent event, RunView& run, const LastBatch& last) const;

  /// Whether any hook reads gradients in on_backward.
  bool reads_gradients() const;
  /// Whether any hook of this rank reads the report of the step that leads there.
  bool reads_report(const Progress& progress) const;

  auto begin() const noexcept { return hooks_.begin(); }
  auto end() const noexcept { return hooks_.end(); }
  std::size_t size() const noexcept { return hooks_.size(); }
  Hook& at(std::size_t i) const { return *hooks_.at(i).second; }

 private:
  std::vector<PrioritizedHook> hooks_;
};

/// Everything that a run has, in addition to the loop that works on it.
struct Run {
  /// @param sections     train and log are read
  /// @param composition  made for training; outlives the run
  /// @param registry     what the step is chosen from; outlives the run
  /// Not collective: the ranks agree on failures afterwards.
  Run(const Sections& sections, Composition& composition, RunData data, const Registry& registry);
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  /// Continues from there: call before training. ScheduleControl::restart_at comes before it.
  /// @param samples_in_epoch  samples of the current epoch that were trained on
  /// @throws CheckpointError  the position is not a step boundary of this global batch
  void resume_at(std::int64_t step, std::int64_t epoch, std::int64_t samples_in_epoch, std::int64_t samples);
  /// One more step is done.
  /// @param samples  that it was trained on
  void advance(std::int64_t samples);

  const Resources& resources;
  WrappedModel& model;
  Updates& updates;
  RunData data;
  RunBounds bounds;
  MadeStep step;
  std::unique_ptr<PerfStats> perf;  // null = sections are not measured
  Progress progress = {};
  EventStorage events = {};
  RunRequests requests = {};
  RecordReports reports = {};
  Saves saves = {};
  RunOrigin origin = {};
  std::map<std::string, std::string> extra = {};
  HookList hooks = {};
  RunView view;  // gives access to all of the above

 private:
  void plan();
};

/// The data of a run: how samples are drawn, loaded and mixed. Limits data.prefetch to the available memory, and logs
/// what the loader takes.
/// @param sections  train, data and loss are read
/// @param registry  what the sampler is chosen from
/// @throws ConfigError, DataError  on every rank
/// Collective.
RunData make_training_data(const Sections& sections, const Resources& resources, const WrappedModel& model,
                           data::Splits splits, const Registry& registry);

}  // namespace lockstep::engine
