// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/engine/trainer.hpp>

#include <utility>

#include "hook_rows.hpp"

namespace lockstep::engine {

namespace {

/// Where nothing has trained since the last time, buffers are alike already.
class SyncBuffersHook : public Hook {
 public:
  void after_epoch(Trainer& trainer) override { synchronise(trainer); }
  void before_evaluation(Trainer& trainer) override { synchronise(trainer); }

 private:
  void synchronise(Trainer& trainer) {
    const std::int64_t step = trainer.progress().step;
    if (std::exchange(step_, step) != step) trainer.strategy().model().synchronise_buffers();
  }

  std::int64_t step_ = -1;  // after which it was done last
};

}  // namespace

std::unique_ptr<Hook> sync_buffers_hook(const Section&, const HookContext&) {
  return std::make_unique<SyncBuffersHook>();
}

}  // namespace lockstep::engine
