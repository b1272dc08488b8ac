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
  SyncBuffersHook() : Hook(HookReads::nothing()) {}

  void after_epoch(RunView& run) override { synchronize(run); }
  void before_evaluation(RunView& run) override { synchronize(run); }

 private:
  void synchronize(RunView& run) {
    const std::int64_t step = run.progress.step;
    if (std::exchange(step_, step) != step) run.wrapper.synchronize_buffers();
  }

  std::int64_t step_ = -1;  // step of the latest synchronization
};

std::unique_ptr<Hook> make_sync_buffers(const Section&, const HookContext&) {
  return std::make_unique<SyncBuffersHook>();
}

}  // namespace

HookRow sync_buffers_row() {
  return {.name = "sync_buffers",
          .help = "Averages buffers (running statistics) over all ranks after each epoch and before each evaluation",
          .keys = {},
          .priority = Priority::normal,
          .make = make_sync_buffers};
}

}  // namespace lockstep::engine
