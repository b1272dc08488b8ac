// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/engine/hooks.hpp>
#include <lockstep/engine/run_state.hpp>
#include <lockstep/engine/trainer.hpp>
#include <lockstep/mpi/topology.hpp>

#include <chrono>

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
  CheckpointHook(Intervals every, const mpi::Communicator& world, SaverOptions options, std::string config_ini)
      : every_(every), saver_(world, std::move(options)), config_ini_(std::move(config_ini)) {}

  void before_train(Trainer& trainer) override {
    saved_at_ = Clock::now();
    first_step_ = trainer.progress().step;  // 0, or what was resumed
  }

  void before_step(Trainer& trainer) override {
    const double elapsed = std::chrono::duration<double>(Clock::now() - saved_at_).count();
    if ((every_.seconds > 0 && elapsed >= every_.seconds) || saver_.is_retry_due()) trainer.request_save();
  }

  void after_step(Trainer& trainer, const StepReport& report) override {
    saver_.poll();
    tell(trainer);
    const Progress& at = trainer.progress();
    const bool by_steps = every_.steps > 0 && at.step % every_.steps == 0;
    const bool by_epochs = every_.epochs > 0 && at.step_in_epoch == 0 && at.epoch % every_.epochs == 0;
    if (!by_steps && !by_epochs && !report.is_save_due) return;
    // Who counts steps or epochs expects each of these checkpoints; the clock can wait.
    saver_.save(at.step, !by_steps && !by_epochs, [&] { return state_of(trainer); });
    saved_at_ = Clock::now();
    tell(trainer);
  }

  void after_train(Trainer& trainer, Outcome) override {
    const std::int64_t step = trainer.progress().step;
    if (step == first_step_) return;
    saver_.save_now(step, [&] { return state_of(trainer); });
    tell(trainer);
  }

 private:
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
  return std::make_unique<CheckpointHook>(every, strategy.world(), saver_options(ckpt, std::move(directory), hosts),
                                          std::move(config_ini));
}

}  // namespace lockstep::engine
