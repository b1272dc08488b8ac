// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/engine/hooks.hpp>
#include <lockstep/engine/trainer.hpp>

namespace lockstep::engine {

namespace {

class ScheduleHook : public Hook {
 public:
  void before_step(Trainer& trainer) override {
    const double factor = trainer.schedule_factor(trainer.progress().step);
    for (optim::ParamGroup& group : trainer.strategy().optimizer().optimizer().groups()) {
      group.options["lr"] = group.base_lr * factor;
    }
  }
};

}  // namespace

std::unique_ptr<Hook> schedule_hook() { return std::make_unique<ScheduleHook>(); }

}  // namespace lockstep::engine
