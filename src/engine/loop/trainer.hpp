// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "engine/loop/run.hpp"
#include "engine/loop/step_runner.hpp"
#include "engine/settings/nonfinite.hpp"

namespace lockstep::engine {

/// The training loop: data, step, hooks, in the order that Hook describes. It owns no model and knows no file.
class Trainer {
 public:
  /// Collective: all ranks agree on the plan, and on a failure of one of them. The parameters are those of Run.
  Trainer(const Sections& sections, Composition& composition, data::Splits splits,
          const Registry& registry = builtin_registry());

  /// @throws std::logic_error  another hook has a state of the same name
  void add_hook(PrioritizedHook hook) { run_->hooks.add(std::move(hook)); }
  void add_hook(Priority priority, std::unique_ptr<Hook> hook) { add_hook({priority, std::move(hook)}); }
  void add_reporter(Reporter reporter) { run_->reports.add(std::move(reporter)); }
  /// Sets the function that restores the last checkpoint in this trainer and returns false if there is none.
  /// Collective. Without it, a run does not return to checkpoints.
  void set_roll_back(std::function<bool()> roll_back) { roll_back_ = std::move(roll_back); }

  /// The state that checkpoints save and restore.
  Run& run() const noexcept { return *run_; }
  const Progress& progress() const noexcept { return run_->progress; }
  /// The view for hooks.
  RunView& view() const noexcept { return run_->view; }

  /// Runs to the end, or to an agreed stop. Collective.
  /// @throws NumericError  on every rank: what is trained is not finite, and train.nonfinite says to stop, or it stays
  ///                       so; and whatever data, model and hooks throw
  Outcome train();

  // The parts of `train`, for a program with a loop of its own: begin, any number of steps, end. Each is collective,
  // and throws as `train` does; after an exception, fail comes instead of end.

  /// Hooks hear that the training begins, and the model is in training mode.
  void begin();
  /// The end of a step.
  struct StepEnd {
    std::optional<Outcome> outcome = {};  ///< a request to end the training
    bool has_gone_back = false;           ///< the training is at an earlier step: a loader starts there
  };
  StepEnd step(const StepInput& input);
  /// The state of another step was restored, between two steps.
  void resume();
  /// Hooks hear that the training has ended.
  void end(Outcome outcome);
  /// The same after an exception: hooks that have begun and not ended hear of it. Not collective.
  /// @param error  null = an exception of another library
  void fail(const Error* error) noexcept;

 private:
  Outcome loop();
  bool is_over() const;
  bool complete_step(StepReport& report);
  /// The decision about the run after a step, equal on every rank.
  struct StepDecision {
    bool stops = false;
    bool ends = false;
    bool saves = false;
    bool evaluates = false;
    int readers = 0;             // ranks that need the report of the step at hand now
    bool goes_back = false;      // the run returns to its last checkpoint instead of being advanced
    bool has_gone_back = false;  // because of the step before

    /// None = the run continues.
    std::optional<Outcome> outcome() const;
  };
  StepDecision judge(QueuedStep& step);
  bool reads_report() const;
  std::vector<double> agree_on(const std::vector<double>& losses, bool reads_report, StepDecision& verdict);
  bool is_to_go_back(std::int64_t step, StepReport& report, double loss);
  bool judge_late(double loss);
  void finish_late();
  bool go_back(std::int64_t step);

  std::unique_ptr<Run> run_;
  NonfiniteHook* nonfinite_ = nullptr;  // one of the hooks
  std::unique_ptr<StepRunner> runner_;  // from begin on
  std::optional<QueuedStep> late_;      // the step before, which is not measured yet
  std::size_t begun_ = 0;               // hooks that have begun
  std::size_t ended_ = 0;               // hooks that have ended
  bool is_in_epoch_ = false;
  bool is_between_steps_ = false;
  std::function<bool()> roll_back_;
};

}  // namespace lockstep::engine
