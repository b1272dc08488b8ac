// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/checkpoints/store.hpp>
#include <lockstep/engine/hooks.hpp>
#include <lockstep/engine/run_state.hpp>
#include <lockstep/engine/trainer.hpp>
#include <lockstep/log/log.hpp>

#include <chrono>

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
  CheckpointHook(Intervals every, std::int64_t keep_last, std::string directory, std::string config_ini)
      : every_(every), keep_last_(keep_last), directory_(std::move(directory)), config_ini_(std::move(config_ini)) {}

  void before_train(Trainer& trainer) override {
    saved_at_ = Clock::now();
    saved_step_ = trainer.progress().step;  // 0, or what was resumed
  }

  void before_step(Trainer& trainer) override {
    const double elapsed = std::chrono::duration<double>(Clock::now() - saved_at_).count();
    if (every_.seconds > 0 && elapsed >= every_.seconds) trainer.request_save();
  }

  void after_step(Trainer& trainer, const StepReport& report) override {
    const Progress& at = trainer.progress();
    const bool by_steps = every_.steps > 0 && at.step % every_.steps == 0;
    const bool by_epochs = every_.epochs > 0 && at.step_in_epoch == 0 && at.epoch % every_.epochs == 0;
    if (by_steps || by_epochs || report.is_save_due) save(trainer);
  }

  void after_train(Trainer& trainer, Outcome) override {
    if (trainer.progress().step != saved_step_) save(trainer);
  }

 private:
  void save(Trainer& trainer) {
    const mpi::Communicator& world = trainer.strategy().world();
    const std::int64_t step = trainer.progress().step;
    const auto begin = Clock::now();
    const auto seconds = [begin] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
    const checkpoints::Archive archive = capture(trainer, config_ini_);
    world.together([&] {
      if (!world.is_root()) return;
      const std::string folder = checkpoints::write(directory_, step, archive);
      checkpoints::retain(directory_, keep_last_);
      log::info("saved " + folder + " in " + std::to_string(seconds()).substr(0, 5) + " s");
    });
    trainer.note_saved(step, seconds());
    saved_at_ = Clock::now();
    saved_step_ = step;
  }

  Intervals every_;
  std::int64_t keep_last_;
  std::string directory_;
  std::string config_ini_;
  Clock::time_point saved_at_;
  std::int64_t saved_step_ = 0;
};

}  // namespace

std::unique_ptr<Hook> checkpoint_hook(const Section& ckpt, std::string directory, std::string config_ini) {
  const Intervals every{
      .steps = ckpt.integer("every_steps"), .epochs = ckpt.integer("every_epochs"), .seconds = ckpt.real("every_secs")};
  return std::make_unique<CheckpointHook>(every, ckpt.integer("keep_last"), std::move(directory),
                                          std::move(config_ini));
}

}  // namespace lockstep::engine
