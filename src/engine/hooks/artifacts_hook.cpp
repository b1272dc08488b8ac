// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/engine/run_view.hpp>

#include "engine/hooks/hooks.hpp"

namespace lockstep::engine {

namespace {

constexpr std::size_t kMaxBytes = 4096;  // limit for each kind of picture, between two steps

class ArtifactsHook : public Hook {
 public:
  explicit ArtifactsHook(std::function<void(EventStorage&)> visit) : visit_(std::move(visit)) {}

  void before_train(RunView& run) override { run.events.keep_pictures(kMaxBytes); }
  bool reads_report(const Progress&) const override { return false; }

  void after_step(RunView& run, const StepReport&) override { visit_(run.events); }
  void between_steps(RunView& run, const StepReport&) override { visit_(run.events); }
  void after_train(RunView& run, Outcome) override { visit_(run.events); }

 private:
  std::function<void(EventStorage&)> visit_;
};

}  // namespace

std::unique_ptr<Hook> artifacts_hook(std::function<void(EventStorage&)> visit) {
  return std::make_unique<ArtifactsHook>(std::move(visit));
}

}  // namespace lockstep::engine
