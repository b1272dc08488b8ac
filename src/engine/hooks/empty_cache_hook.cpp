// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/engine/run_view.hpp>

#include <ATen/DeviceAccelerator.h>

#include <utility>

#include "engine/hooks/hook_rows.hpp"

namespace lockstep::engine {

namespace {

class EmptyCacheHook : public Hook {
 public:
  EmptyCacheHook(const EmptyCacheTimes& times, std::function<void(RunView&)> empty)
      : Hook(HookReads::nothing()), times_(times), empty_(std::move(empty)) {}

  void after_step(RunView& run, const StepReport& report) override {
    if (times_.interval > 0 && report.progress.step % times_.interval == 0) empty_(run);
  }
  void after_epoch(RunView& run) override {
    if (times_.is_after_epochs) empty_(run);
  }
  void after_evaluation(RunView& run, const Measured&) override {
    if (times_.is_after_evaluations) empty_(run);
  }

 private:
  EmptyCacheTimes times_;
  std::function<void(RunView&)> empty_;
};

void empty_cache_of(RunView& run) {
  if (!run.device.is_cpu()) at::accelerator::emptyCache();
}

std::unique_ptr<Hook> make_empty_cache(const Section& options, const HookContext&) {
  const EmptyCacheTimes times{.interval = options.integer("interval"),
                              .is_after_epochs = options.boolean("epochs"),
                              .is_after_evaluations = options.boolean("evaluations")};
  return empty_cache_hook_at(times, empty_cache_of);
}

}  // namespace

std::unique_ptr<Hook> empty_cache_hook_at(const EmptyCacheTimes& times, std::function<void(RunView&)> empty) {
  return std::make_unique<EmptyCacheHook>(times, std::move(empty));
}

HookRow empty_cache_row() {
  return {.name = "empty_cache",
          .help =
              "Returns GPU memory that LibTorch keeps for reuse, for example to another process. The next steps "
              "allocate it again, which takes time",
          .keys = {keys::integer("interval", "0", "Steps between returns. 0 = not after steps", 0, kMaxSteps),
                   keys::boolean("epochs", "true", "Return memory after each epoch"),
                   keys::boolean("evaluations", "true", "Return memory after each evaluation")},
          .priority = Priority::normal,
          .make = make_empty_cache};
}

}  // namespace lockstep::engine
