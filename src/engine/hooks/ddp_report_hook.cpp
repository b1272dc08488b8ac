// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/engine/run_view.hpp>
#include <lockstep/mpi/communicator.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include "engine/hooks/hooks.hpp"

namespace lockstep::engine {

PrioritizedHook ddp_report_hook(const std::function<void(const parallel::DdpReport&)>& on_report) {
  const auto report = [on_report](RunView& run, Outcome outcome) {
    if (outcome == Outcome::failed) return;
    const parallel::DdpReport all_ranks = run.wrapper.report();
    if (run.world.is_root() && on_report) on_report(all_ranks);
  };
  return {Priority::very_low, callback_hook({.after_train = report})};
}

}  // namespace lockstep::engine
