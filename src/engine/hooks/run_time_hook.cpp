// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/engine/run_view.hpp>
#include <lockstep/log/log.hpp>

#include <chrono>

#include "engine/hooks/hook_rows.hpp"
#include "engine/measures/run_clock.hpp"

namespace lockstep::engine {

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

class RunTimeHook : public Hook {
 public:
  explicit RunTimeHook(std::int64_t warmup) : Hook(HookReads::nothing()), clock_(warmup) {}

  void before_train(RunView&) override { clock_.begin(now()); }

  void after_step(RunView&, const StepReport& report) override { clock_.step(report.seconds, report.data_seconds); }

  void after_train(RunView&, Outcome) override {
    const std::string speed = clock_.speed();
    if (!speed.empty()) log::info("training speed: " + speed);
    log::info("training time: " + clock_.total(now()));
  }

 private:
  RunClock clock_;
};

std::unique_ptr<Hook> make_run_time(const Section& options, const HookContext&) {
  return std::make_unique<RunTimeHook>(options.integer("warmup"));
}

}  // namespace

HookRow run_time_row() {
  return {.name = "run_time",
          .help =
              "Reports at the end of the run the time per step and the share of time spent in hooks and in waiting for "
              "data",
          .keys = {keys::integer("warmup", "3", "Number of first steps that are excluded", 0, kMaxSteps)},
          .priority = Priority::highest,
          .make = make_run_time};
}

}  // namespace lockstep::engine
