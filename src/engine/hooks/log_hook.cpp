// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/engine/run_view.hpp>
#include <lockstep/mpi/communicator.hpp>
#include <lockstep/optim/optim_wrapper.hpp>

#include <utility>
#include <vector>

#include "engine/hooks/hooks.hpp"

namespace lockstep::engine {

namespace {

class LogHook : public Hook {
 public:
  LogHook(std::int64_t interval, std::int64_t window)
      : Hook({.report = [interval](const Progress& progress) { return is_log_due(progress, interval); }}),
        interval_(interval),
        window_(static_cast<std::size_t>(window)),
        losses_(window_) {}

  void before_epoch(RunView& run) override {
    if (std::exchange(roll_backs_, run.roll_backs) != run.roll_backs) losses_ = History(window_);
  }

  void on_measured(RunView&, const StepReport& report) override {
    if (!report.is_skipped) losses_.add({.value = report.loss, .step = report.progress.step});
  }

  void after_step(RunView& run, const StepReport& report) override {
    const Progress& progress = report.progress;
    if (!is_log_due(progress, interval_)) return;
    Record record{.kind = "train",
                  .values = {{"step", progress.step},
                             {"epoch", progress.epoch},
                             {"samples", progress.samples},
                             {"loss", loss_of(report)},
                             {"lr", report.lr}}};
    for (const auto& [name, lr] : rates_of(run.parts)) record.values.emplace_back("lr/" + name, lr);
    if (report.grad_norm) record.values.emplace_back("grad_norm", *report.grad_norm);
    if (report.loss_scale) {
      record.values.emplace_back("loss_scale", *report.loss_scale);
      record.values.emplace_back("skipped_steps", report.skipped_steps);
    }
    for (const auto& [part, wrapper] : run.parts) {
      if (part.empty() || wrapper.scaler() == nullptr) continue;
      record.values.emplace_back("loss_scale/" + part, wrapper.scaler()->scale());
      record.values.emplace_back("skipped_steps/" + part, wrapper.scaler()->state().skipped_steps);
    }
    if (report.evaluations) record.values.emplace_back("evaluations", *report.evaluations);
    for (const Scalar& scalar : run.events.updates_since(seen_, interval_)) {
      record.values.emplace_back(scalar.name, scalar.value);
    }
    // Names that are taken show in the first record, and all ranks agree on that.
    std::exchange(is_first_, false) ? run.world.all_or_throw([&] { run.report(record); }) : run.report(record);
  }

 private:
  double loss_of(const StepReport& report) const { return report.is_skipped ? report.loss : losses_.mean(window_); }

  using Rates = std::vector<std::pair<std::string, double>>;

  /// The learning rates of the parameter groups, if they differ, by the name of the group. With parts, that of each
  /// part by its name, or those of its groups as "part/group".
  static Rates rates_of(const optim::OptimWrapperDict& parts) {
    Rates all;
    for (const auto& [part, wrapper] : parts) {
      const Rates rates = rates_of(wrapper.optimizer().groups(), part.empty() ? "" : part + "/");
      all.insert(all.end(), rates.begin(), rates.end());
      if (!part.empty() && rates.empty()) {
        all.emplace_back(part, wrapper.optimizer().groups().front().options.at("lr"));
      }
    }
    return all;
  }

  static Rates rates_of(const std::vector<optim::ParamGroup>& groups, const std::string& prefix) {
    Rates rates;
    bool differ = false;
    for (const optim::ParamGroup& group : groups) {
      rates.emplace_back(prefix + group.name, group.options.at("lr"));
      differ = differ || rates.back().second != rates.front().second;
    }
    return differ ? rates : Rates();
  }

  std::int64_t interval_;
  std::size_t window_;
  History losses_;        // losses of the latest steps that were not skipped
  std::size_t seen_ = 0;  // cursor of the events
  int roll_backs_ = 0;
  bool is_first_ = true;  // true until this process has reported a record
};

}  // namespace

bool is_log_due(const Progress& progress, std::int64_t interval) {
  return progress.step % interval == 0 || progress.step == progress.total_steps;
}

PrioritizedHook log_hook(std::int64_t interval, std::int64_t window) {
  return {Priority::below_normal, std::make_unique<LogHook>(interval, window)};
}

}  // namespace lockstep::engine
