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
  explicit RunTimeHook(std::int64_t warmup) : clock_(warmup) {}

  bool reads_report(const Progress&) const override { return false; }

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

}  // namespace

std::unique_ptr<Hook> run_time_hook(const Section& options, const HookContext&) {
  return std::make_unique<RunTimeHook>(options.integer("warmup"));
}

}  // namespace lockstep::engine
