// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/engine/run_view.hpp>
#include <lockstep/mpi/communicator.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include "engine/hooks/hooks.hpp"

namespace lockstep::engine {

namespace {

class DdpReportHook : public Hook {
 public:
  explicit DdpReportHook(std::function<void(const parallel::DdpReport&)> on_report)
      : on_report_(std::move(on_report)) {}

  bool reads_report(const Progress&) const override { return false; }

  void after_train(RunView& run, Outcome outcome) override {
    if (outcome == Outcome::failed) return;
    const parallel::DdpReport report = run.wrapper.report();
    if (run.world.is_root() && on_report_) on_report_(report);
  }

 private:
  std::function<void(const parallel::DdpReport&)> on_report_;
};

}  // namespace

std::unique_ptr<Hook> ddp_report_hook(std::function<void(const parallel::DdpReport&)> on_report) {
  return std::make_unique<DdpReportHook>(std::move(on_report));
}

}  // namespace lockstep::engine
