// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/engine/run_view.hpp>
#include <lockstep/mpi/communicator.hpp>
#include <lockstep/optim/optim_wrapper.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "engine/hooks/hooks.hpp"
#include "engine/settings/run_position.hpp"
#include "mpi/shared/pending_all_gather.hpp"

namespace lockstep::engine {

namespace {

class LogHook : public Hook {
 public:
  LogHook(const Every& every, std::int64_t window)
      : Hook({.report = [every](const Progress& progress) { return is_log_due(progress, every); }}),
        every_(every),
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
    if (!is_log_due(progress, every_)) return;
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
    const std::int64_t steps = every_.steps_at(position_of(progress), progress.steps_per_epoch);
    for (const Scalar& scalar : run.events.updates_since(seen_, steps)) {
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

  Every every_;
  std::size_t window_;
  History losses_;        // losses of the latest steps that were not skipped
  std::size_t seen_ = 0;  // cursor of the events
  int roll_backs_ = 0;
  bool is_first_ = true;  // true until this process has reported a record
};

/// A double holds as many bits of a number exactly.
constexpr std::uint64_t kExactBits = (std::uint64_t{1} << 53) - 1;

/// How many numbers a rank has, and a digest of their names.
std::vector<double> head_of(const std::vector<std::pair<std::string, double>>& mine) {
  std::string names;
  for (const auto& [name, value] : mine) names += name + "\n";
  return {static_cast<double>(mine.size()), static_cast<double>(std::hash<std::string>{}(names)&kExactBits)};
}

/// The numbers of one interval, under way to all ranks: first how many they are, then themselves.
class RankEventsHook : public Hook {
 public:
  RankEventsHook(const Every& every, const mpi::Communicator& world)
      : Hook({.report = [this](const Progress& progress) { return is_due(progress); }}),
        every_(every),
        world_(world.handle()) {}

  void after_step(RunView& run, const StepReport& report) override {
    run.events.put_of_rank("step_seconds", report.seconds, "rank_events");
    run.events.put_of_rank("data_seconds", report.data_seconds, "rank_events");
    if (!is_due(report.progress)) return;
    finish(run);  // the last line's, if they are still under way
    mine_ = run.events.take_rank_means();
    step_ = report.progress.step;
    head_.emplace(world_, head_of(mine_));
  }

  void before_agreement(RunView& run) override {
    if (head_ && head_->is_done()) {
      const std::string error = open();  // other ranks may come to know it some steps later
      if (!error.empty()) run.requests.fail(std::make_exception_ptr(ConfigError(error)));
    }
    if (body_ && body_->is_done()) write_record(run);
  }

  void after_train(RunView& run, Outcome outcome) override {
    if (outcome != Outcome::failed) finish(run);
  }

 private:
  /// The means of an interval contain the losses of all its steps.
  bool is_due(const Progress& progress) const { return world_.size() > 1 && is_log_due(progress, every_); }

  /// Waits. Collective, so that all ranks see an error at the same place.
  void finish(RunView& run) {
    if (head_) {
      const std::string error = open();
      if (!error.empty()) throw_agreed(ExitCode::configuration, error);
    }
    if (body_) write_record(run);
  }

  /// Every rank has said what it has: the same everywhere, or an error that all of them come to.
  std::string open() {
    const std::span<const double> heads = head_->wait();
    const bool are_equal = std::equal(heads.begin() + 2, heads.end(), heads.begin());
    const std::vector<double> said(heads.begin(), heads.end());
    head_.reset();
    if (!are_equal) {
      std::string counts;
      for (std::size_t rank = 0; 2 * rank < said.size(); ++rank) {
        counts += (rank == 0 ? "" : ", ") + std::to_string(static_cast<std::int64_t>(said[2 * rank]));
      }
      return "ranks measured different values up to step " + std::to_string(step_) + " (" + counts +
             " numbers, or different names); call put_of_rank with the same names on every rank";
    }
    std::vector<double> values;
    for (const auto& [name, value] : mine_) values.push_back(value);
    if (!values.empty()) body_.emplace(world_, std::move(values));
    return "";
  }

  void write_record(RunView& run) {
    const std::span<const double> all = body_->wait();
    const std::size_t ranks = all.size() / mine_.size();
    Record record{.kind = "ranks", .values = {{"step", step_}}};
    for (std::size_t i = 0; i < mine_.size(); ++i) {
      std::vector<double> of_ranks;
      for (std::size_t rank = 0; rank < ranks; ++rank) of_ranks.push_back(all[rank * mine_.size() + i]);
      const auto [min, max] = std::minmax_element(of_ranks.begin(), of_ranks.end());
      const double mean = std::accumulate(of_ranks.begin(), of_ranks.end(), 0.0) / static_cast<double>(ranks);
      record.values.emplace_back(mine_[i].first + "/mean", mean);
      record.values.emplace_back(mine_[i].first + "/min", *min);
      record.values.emplace_back(mine_[i].first + "/max", *max);
    }
    body_.reset();
    run.report(record);
  }

  Every every_;
  mpi::Communicator world_;  // a line of its own: other collectives continue meanwhile
  std::vector<std::pair<std::string, double>> mine_;
  std::int64_t step_ = 0;
  std::optional<mpi::PendingAllGather> head_;
  std::optional<mpi::PendingAllGather> body_;
};

}  // namespace

bool is_log_due(const Progress& progress, const Every& every) {
  return every.is_due(position_of(progress)) || progress.step == progress.total_steps;
}

PrioritizedHook log_hook(const Every& every, std::int64_t window) {
  return {Priority::below_normal, std::make_unique<LogHook>(every, window)};
}

PrioritizedHook rank_events_hook(const Every& every, const mpi::Communicator& world) {
  return {Priority::very_high, std::make_unique<RankEventsHook>(every, world)};
}

}  // namespace lockstep::engine
