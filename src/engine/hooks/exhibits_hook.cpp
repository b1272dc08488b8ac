// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/engine/hooks.hpp>
#include <lockstep/engine/trainer.hpp>

namespace lockstep::engine {

namespace {

constexpr std::size_t kMost = 4096;  // of a kind, between two steps

class ExhibitsHook : public Hook {
 public:
  explicit ExhibitsHook(std::function<void(EventStorage&)> visit) : visit_(std::move(visit)) {}

  void before_train(Trainer& trainer) override { trainer.events().keep_pictures(kMost); }
  void after_step(Trainer& trainer, const StepReport&) override { visit_(trainer.events()); }
  void between_steps(Trainer& trainer, const StepReport&) override { visit_(trainer.events()); }
  void after_train(Trainer& trainer, Outcome) override { visit_(trainer.events()); }

 private:
  std::function<void(EventStorage&)> visit_;
};

}  // namespace

std::unique_ptr<Hook> exhibits_hook(std::function<void(EventStorage&)> visit) {
  return std::make_unique<ExhibitsHook>(std::move(visit));
}

}  // namespace lockstep::engine
