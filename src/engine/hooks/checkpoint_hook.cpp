// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/engine/hooks.hpp>
#include <lockstep/engine/run_state.hpp>
#include <lockstep/engine/trainer.hpp>
#include <lockstep/log/log.hpp>
#include <lockstep/mpi/topology.hpp>

#include <chrono>
#include <optional>

#include "best_values.hpp"
#include "checkpoint_saver.hpp"
#include "replicas.hpp"

namespace lockstep::engine {

namespace {

using Clock = std::chrono::steady_clock;

struct Intervals {
  std::int64_t steps;   // 0: off
  std::int64_t epochs;  // 0: off
  double seconds;       // 0: off
};

class CheckpointHook : public Hook {
 public:
  CheckpointHook(Intervals every, const mpi::Communicator& world, SaverOptions options, BestValues best,
                 std::string config_ini)
      : every_(every), saver_(world, std::move(options)), best_(std::move(best)), config_ini_(std::move(config_ini)) {}

  void before_train(Trainer& trainer) override {
    saved_at_ = Clock::now();
    first_step_ = trainer.progress().step;  // 0, or what was resumed
    if (first_step_ > 0) saver_.keep_origin(first_step_);
  }

  void before_step(Trainer& trainer) override {
    const double elapsed = std::chrono::duration<double>(Clock::now() - saved_at_).count();
    if ((every_.seconds > 0 && elapsed >= every_.seconds) || saver_.is_retry_due()) trainer.request_save();
  }

  void between_steps(Trainer& trainer, const StepReport& report) override {
    saver_.poll();
    tell(trainer);
    const Progress& at = trainer.progress();
    const bool by_steps = every_.steps > 0 && at.step % every_.steps == 0;
    const bool by_epochs = every_.epochs > 0 && at.step_in_epoch == 0 && at.epoch % every_.epochs == 0;
    const bool is_best = note_best(trainer);
    if (!by_steps && !by_epochs && !is_best && !report.is_save_due) return;
    // Who counts steps or epochs expects each of these checkpoints, and so does the best one; the clock can wait.
    saver_.save(at.step, !by_steps && !by_epochs && !is_best, [&] { return state_of(trainer); });
    saved_at_ = Clock::now();
    tell(trainer);
  }

  void before_roll_back(Trainer& trainer) override {
    saver_.finish();
    tell(trainer);
  }

  void after_train(Trainer& trainer, Outcome outcome) override {
    if (outcome == Outcome::failed) return;
    const std::int64_t step = trainer.progress().step;
    if (step == first_step_) return;
    saver_.save_now(step, [&] { return state_of(trainer); });
    tell(trainer);
  }

  std::string state_name() const override { return best_.is_off() ? "" : "best"; }

  void save_state(checkpoints::Archive& archive, const std::string& group) const override {
    best_.capture(archive, group);
  }

  void load_state(const checkpoints::Archive& archive, const std::string& group) override {
    if (best_.restore(archive, group)) {
      saver_.keep_best(best_.steps());
    } else {
      log::info("the best evaluations are sought anew: those of the checkpoint are by another metric or rule");
    }
  }

 private:
  /// Whether the evaluation of this step, if there was one, is one of the best.
  bool note_best(const Trainer& trainer) {
    const bool is_best = trainer.measured().step == trainer.progress().step && best_.offer(trainer.measured());
    if (is_best) saver_.keep_best(best_.steps());
    return is_best;
  }

  checkpoints::Archive state_of(Trainer& trainer) const {
    require_equal_replicas(trainer.strategy());
    return capture(trainer, config_ini_, saver_.is_writer());
  }

  /// Others ask the trainer what is committed and how long it takes.
  void tell(Trainer& trainer) const {
    if (saver_.saved_step() >= 0) trainer.note_saved(saver_.saved_step(), saver_.longest_seconds());
  }

  Intervals every_;
  CheckpointSaver saver_;
  BestValues best_;
  std::string config_ini_;
  Clock::time_point saved_at_;
  std::int64_t first_step_ = 0;
};

}  // namespace

std::unique_ptr<Hook> checkpoint_hook(const Section& ckpt, Strategy& strategy, std::string directory,
                                      std::string config_ini) {
  const Intervals every{
      .steps = ckpt.integer("every_steps"), .epochs = ckpt.integer("every_epochs"), .seconds = ckpt.real("every_secs")};
  const int hosts = mpi::Topology::of(strategy.world()).host_count;
  std::optional<BestValues> best;
  strategy.world().together([&] { best.emplace(ckpt); });
  return std::make_unique<CheckpointHook>(every, strategy.world(), saver_options(ckpt, std::move(directory), hosts),
                                          *std::move(best), std::move(config_ini));
}

}  // namespace lockstep::engine
