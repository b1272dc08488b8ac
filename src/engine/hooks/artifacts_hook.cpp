// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/engine/run_view.hpp>

#include "engine/hooks/hooks.hpp"

namespace lockstep::engine {

PrioritizedHook artifacts_hook(const std::function<void(EventStorage&)>& visit) {
  constexpr std::size_t kMaxPictures = 4096;  // limit for each kind of picture, between two steps
  return {Priority::below_normal,
          callback_hook({.before_train = [](RunView& run) { run.events.keep_pictures(kMaxPictures); },
                         .after_step = [visit](RunView& run, const StepReport&) { visit(run.events); },
                         .between_steps = [visit](RunView& run, const StepReport&) { visit(run.events); },
                         .after_train = [visit](RunView& run, Outcome) { visit(run.events); },
                         .reads = HookReads::nothing()})};
}

}  // namespace lockstep::engine
