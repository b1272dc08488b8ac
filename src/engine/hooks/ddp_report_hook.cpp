// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/engine/run_view.hpp>
#include <lockstep/mpi/communicator.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include "engine/hooks/hooks.hpp"

namespace lockstep::engine {

namespace {

class DdpReportHook : public Hook {
 public:
  explicit DdpReportHook(std::function<void(const parallel::DdpReport&)> tell) : tell_(std::move(tell)) {}

  void after_train(RunView& run, Outcome outcome) override {
    if (outcome == Outcome::failed) return;
    const parallel::DdpReport report = run.wrapper.report();
    if (run.world.is_root() && tell_) tell_(report);
  }

 private:
  std::function<void(const parallel::DdpReport&)> tell_;
};

}  // namespace

std::unique_ptr<Hook> ddp_report_hook(std::function<void(const parallel::DdpReport&)> tell) {
  return std::make_unique<DdpReportHook>(std::move(tell));
}

}  // namespace lockstep::engine
