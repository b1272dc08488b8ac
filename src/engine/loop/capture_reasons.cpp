// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>

#include "engine/loop/capture_policy.hpp"

namespace lockstep::engine {

namespace {

struct CaptureReason {
  bool (*applies)(const CaptureFacts& facts);
  const char* text;
};

/// The first one that applies is stated.
constexpr std::array<CaptureReason, 12> kReasons = {{
    {[](const CaptureFacts& facts) { return !facts.is_on_gpu; }, "CUDA graphs require a GPU (run.device)"},
    {[](const CaptureFacts& facts) { return facts.has_lanes; }, "lanes (train.lanes) are summed on the CPU"},
    {[](const CaptureFacts& facts) { return facts.uses_closure; },
     "the optimizer (optim.name) evaluates the loss several times in a step and decides on the CPU how often"},
    {[](const CaptureFacts& facts) { return facts.has_parts; },
     "several optimizers (optim.part, strategy.separate) update the parameters"},
    {[](const CaptureFacts& facts) { return !facts.has_captured_form; },
     "the action of a step (train.step) is not model, simple or amp"},
    {[](const CaptureFacts& facts) { return facts.is_sharded; },
     "the training state is divided among the ranks (strategy.name=sharded)"},
    {[](const CaptureFacts& facts) { return !facts.has_fixed_hook_work; },
     "the communication hook (ddp.comm_hook) decides on the CPU what it sends; of the built-in hooks, only powersgd "
     "without ddp.powersgd_warm_start does"},
    {[](const CaptureFacts& facts) { return facts.finds_unused; },
     "the graph of each step is searched for unused parameters (ddp.find_unused_parameters)"},
    {[](const CaptureFacts& facts) { return facts.reads_gradients; },
     "a hook reads the gradients between backward and update (train.hooks)"},
    {[](const CaptureFacts& facts) { return facts.times_sections; },
     "the sections of each step are timed (log.sections)"},
    {[](const CaptureFacts& facts) { return facts.reports_times; },
     "the communication of each step is timed (ddp.report)"},
    {[](const CaptureFacts& facts) { return facts.checks_writes; },
     "writes to parameters are checked (ddp.check_writes)"},
}};

}  // namespace

std::string reason_against_capture(const CaptureFacts& facts) {
  const auto found = std::find_if(kReasons.begin(), kReasons.end(),
                                  [&facts](const CaptureReason& reason) { return reason.applies(facts); });
  return found == kReasons.end() ? "" : found->text;
}

}  // namespace lockstep::engine
