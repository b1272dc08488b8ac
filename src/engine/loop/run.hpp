// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/engine/event_storage.hpp>
#include <lockstep/engine/run_view.hpp>
#include <lockstep/engine/train_step.hpp>

#include <cstdint>
#include <memory>
#include <optional>

#include "engine/loop/hook_list.hpp"
#include "engine/loop/record_reports.hpp"
#include "engine/loop/run_origin.hpp"
#include "engine/saving/saves.hpp"
#include "engine/settings/builtin_registry.hpp"
#include "engine/settings/run_bounds.hpp"
#include "engine/setup/updates.hpp"
#include "engine/steps/perf_timer.hpp"
#include "engine/steps/rows.hpp"

namespace lockstep::engine {

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
  void advance();

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

}  // namespace lockstep::engine
