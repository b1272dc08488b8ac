// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/engine/run_view.hpp>
#include <lockstep/engine/stateful.hpp>
#include <lockstep/log/log.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <chrono>
#include <functional>
#include <optional>

#include "batch/nvtx_range.hpp"
#include "core/system/status_line.hpp"
#include "core/text/duration.hpp"
#include "engine/hooks/hooks.hpp"
#include "engine/saving/best_values.hpp"
#include "engine/saving/checkpoint_saver.hpp"
#include "engine/saving/saves.hpp"
#include "engine/settings/run_position.hpp"
#include "mpi/process/topology.hpp"

namespace lockstep::engine {

namespace {

using Clock = std::chrono::steady_clock;

class CheckpointHook : public Hook {
 public:
  CheckpointHook(SavingSettings settings, const mpi::Communicator& world, SaverOptions options, BestValues best,
                 CaptureState capture)
      : Hook({.report = [this](const Progress& progress) { return is_counted(progress); }}, states_of(best)),
        settings_(std::move(settings)),
        saver_(world, std::move(options)),
        best_(std::move(best)),
        capture_(std::move(capture)) {}

  void before_train(RunView& run) override {
    saved_at_ = Clock::now();
    first_step_ = run.progress.step;  // 0, or what was resumed
    if (first_step_ > 0) saver_.keep_origin(first_step_);
    run.saves.finish = [this, &run] {
      saver_.finish();
      note_saves(run);
    };
    run.saves.save = [this, &run] { save_now(run); };
  }

  void before_step(RunView& run) override {
    if (saver_.is_lease_lost()) RunRequests::stop();  // the final save then ends every rank with the reason
    const RunPosition next = next_position(run.progress);
    if (!settings_.begin.is_reached(next)) return;
    const double seconds = settings_.every.seconds_at(next);
    const bool is_due = seconds > 0 && seconds_since(saved_at_) >= seconds;
    if (is_due || saver_.is_retry_due()) run.requests.save();
  }

  void between_steps(RunView& run, const StepReport& report) override {
    saver_.poll();
    note_saves(run);
    const Progress& position = run.progress;
    const bool is_counted_now = is_counted(position);
    const bool is_best = settings_.begin.is_reached(position_of(position)) && note_best(run);
    if (!is_counted_now && !is_best && !report.is_save_due) return;
    const batch::NvtxRange range("save");
    const ScopedActivity activity(Activity::saving);
    // Who counts steps or epochs expects each of these checkpoints, and so does the best one; the clock can wait.
    saver_.save(position.step, !is_counted_now && !is_best, [&] { return capture_(saver_.is_writer()); });
    saved_at_ = Clock::now();
    note_saves(run);
  }

  void after_train(RunView& run, Outcome outcome) override {
    if (outcome == Outcome::failed) return;
    if (run.progress.step != first_step_) save_now(run);
  }

 private:
  void save_now(RunView& run) {
    const batch::NvtxRange range("save");
    const ScopedActivity activity(Activity::saving);
    saver_.save_now(run.progress.step, [&] { return capture_(saver_.is_writer()); });
    saved_at_ = Clock::now();
    note_saves(run);
  }

  std::vector<std::shared_ptr<Stateful>> states_of(const BestValues& best) {
    if (best.is_off()) return {};
    return {hook_state("best", std::bind_front(&BestValues::capture, &best_),
                       std::bind_front(&CheckpointHook::load_best, this))};
  }

  void load_best(const checkpoints::Archive& archive, const std::string& group) {
    if (best_.restore(archive, group)) {
      saver_.keep_best(best_.steps());
    } else {
      log::info("the best evaluations of the checkpoint are discarded: they used another metric or direction");
    }
  }

  /// Whether a checkpoint is due by the number of steps or epochs. The clock and the file SAVE request a checkpoint;
  /// then the ranks agree on it.
  bool is_counted(const Progress& progress) const {
    const RunPosition position = position_of(progress);
    return settings_.begin.is_reached(position) && settings_.every.is_due(position);
  }

  /// Whether the evaluation of this step, if there was one, is one of the best.
  bool note_best(const RunView& run) {
    const bool is_best = run.measured.step == run.progress.step && best_.offer(run.measured);
    if (is_best) saver_.keep_best(best_.steps());
    return is_best;
  }

  /// Other hooks look at what is committed, and how long it takes.
  void note_saves(RunView& run) const {
    if (saver_.saved_step() >= 0) run.saves.note(saver_.saved_step(), saver_.longest_seconds());
  }

  SavingSettings settings_;
  CheckpointSaver saver_;
  BestValues best_;
  CaptureState capture_;
  Clock::time_point saved_at_;
  std::int64_t first_step_ = 0;
};

}  // namespace

PrioritizedHook checkpoint_hook(const SavingSettings& settings, const mpi::Communicator& world, std::string directory,
                                std::shared_ptr<checkpoints::Lease> lease, CaptureState capture) {
  const int hosts = mpi::Topology::of(world).host_count;
  std::optional<BestValues> best;
  SaverOptions options;
  world.all_or_throw([&] {
    best.emplace(settings.best);
    options = saver_options(settings, std::move(directory), hosts);
    options.lease = std::move(lease);
  });
  return {Priority::very_low,
          std::make_unique<CheckpointHook>(settings, world, std::move(options), *std::move(best), std::move(capture))};
}

}  // namespace lockstep::engine
