// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/engine/run_view.hpp>
#include <lockstep/engine/stateful.hpp>
#include <lockstep/log/log.hpp>

#include <functional>
#include <utility>

#include "engine/hooks/hook_rows.hpp"
#include "engine/hooks/hooks.hpp"
#include "engine/measures/early_stop.hpp"
#include "engine/saving/best_values.hpp"

namespace lockstep::engine {

namespace {

constexpr double kMaxReal = 1e300;

/// Measured is the same on every rank, and so is what is made of it: nothing has to be agreed on.
class EarlyStoppingHook : public Hook {
 public:
  EarlyStoppingHook(EarlyStop stop, std::string metric, Better better, bool is_strict, std::string name)
      : Hook(HookReads::nothing(), {hook_state(name, std::bind_front(&EarlyStoppingHook::save, this),
                                               std::bind_front(&EarlyStoppingHook::load, this))}),
        stop_(stop),
        metric_(std::move(metric)),
        better_(better),
        is_strict_(is_strict),
        name_(std::move(name)) {}

  void before_train(RunView& run) override { end_if_over(run); }  // `before_train` of a run that had ended this way

  /// The sentence for a run that is over; empty = it is not.
  std::string end() const {
    const std::string reason = stop_.reason();
    return reason.empty() ? "" : name_ + ": " + metric_ + " " + reason;
  }

  void after_evaluation(RunView& run, const Measured& measured) override {
    if (!stop_.reason().empty()) return;  // a last one, of a run that ends
    std::string names;
    for (const auto& [name, value] : measured.values) {
      if (is_metric(name, metric_)) {
        stop_.offer(value, measured.step);
        return end_if_over(run);
      }
      names += (names.empty() ? "" : ", ") + name;
    }
    report_missing(names);
  }

 private:
  /// The word in a checkpoint.
  std::string rule() const { return better_ == Better::lower ? "less" : "greater"; }

  void save(checkpoints::Archive& archive, const std::string& group) const {
    archive.set(group, "metric", metric_);
    archive.set(group, "rule", rule());
    stop_.capture(archive, group);
  }

  void load(const checkpoints::Archive& archive, const std::string& group) {
    if (archive.text(group, "metric") == metric_ && archive.text(group, "rule") == rule()) {
      stop_.restore(archive, group);
    } else {
      log::info(name_ + " starts from its initial state: the checkpoint used another metric or direction");
    }
  }

  void end_if_over(RunView& run) {
    if (end().empty()) return;
    log::info(end() + ": the run ends after step " + std::to_string(run.progress.step));
    run.requests.finish();
  }

  void report_missing(const std::string& names) {
    const std::string words =
        name_ + ": metric '" + metric_ + "' is not an evaluation metric; the evaluation computes: " + names;
    if (is_strict_) throw_agreed(ExitCode::configuration, words);
    if (!std::exchange(has_warned_, true)) log::warning(words);
  }

  EarlyStop stop_;
  std::string metric_;
  Better better_;
  bool is_strict_;
  std::string name_;
  bool has_warned_ = false;
};

std::unique_ptr<Hook> make_early_stopping(const Section& options, const HookContext& context) {
  const std::string& metric = options.text("metric");
  const Better better = chosen_better(metric, options.text("better"), "metric", "better");
  EarlyStop::EarlyStopOptions stop{.better = better,
                                   .min_delta = options.real("min_delta"),
                                   .patience = options.integer("patience"),
                                   .checks_finite = options.boolean("check_finite")};
  if (!options.is_default("threshold")) stop.threshold = options.real("threshold");
  return std::make_unique<EarlyStoppingHook>(EarlyStop(stop), metric, better, options.boolean("strict"), context.name);
}

}  // namespace

HookRow early_stopping_row() {
  return {.name = "early_stopping",
          .help = "Ends the run normally when a metric of the evaluation stops improving",
          .keys = {keys::text("metric", "val/loss", "Name of an evaluation metric"), better_key("better", "rule"),
                   keys::real("min_delta", "0", "Minimum change that counts as an improvement. 0 = any change", 0,
                              kMaxReal),
                   keys::integer("patience", "5",
                                 "Number of consecutive evaluations without improvement after which the run ends", 1,
                                 kMaxSteps),
                   keys::real("threshold", "nan", "The run also ends when the metric is better than this value",
                              -kMaxReal, kMaxReal),
                   keys::boolean("check_finite", "true", "End the run when the metric is NaN or infinite"),
                   keys::boolean(
                       "strict", "true",
                       "An evaluation without the metric is an error. If false, it is reported once as a warning")},
          .priority = Priority::lowest,
          .make = make_early_stopping};
}

std::string early_stop_in(const checkpoints::Archive& groups, const Sections& run) {
  for (const auto& [priority, hook] : make_hooks(run, builtin_hooks(), "early_stopping")) {
    auto& stopping = dynamic_cast<EarlyStoppingHook&>(*hook);
    for (const auto& state : stopping.states()) state->restore(groups, {});
    if (!stopping.end().empty()) return stopping.end();
  }
  return "";
}

}  // namespace lockstep::engine
