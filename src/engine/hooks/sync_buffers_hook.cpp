// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/engine/run_view.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <utility>

#include "engine/hooks/hook_rows.hpp"

namespace lockstep::engine {

namespace {

/// Buffers are alike already where nothing has trained since the last time.
class SyncBuffersHook : public Hook {
 public:
  bool reads_report(const Progress&) const override { return false; }

  void after_epoch(RunView& run) override { synchronize(run); }
  void before_evaluation(RunView& run) override { synchronize(run); }

 private:
  void synchronize(RunView& run) {
    const std::int64_t step = run.progress.step;
    if (std::exchange(step_, step) != step) run.wrapper.synchronize_buffers();
  }

  std::int64_t step_ = -1;  // step of the latest synchronization
};

}  // namespace

std::unique_ptr<Hook> sync_buffers_hook(const Section&, const HookContext&) {
  return std::make_unique<SyncBuffersHook>();
}

}  // namespace lockstep::engine
