// SPDX-License-Identifier: BSD-3-Clause
#include "engine/loop/hook_list.hpp"

#include <lockstep/engine/stateful.hpp>

#include <algorithm>
#include <stdexcept>

namespace lockstep::engine {

namespace {

void require_other_names(Hook& known, Hook& added) {
  for (const auto& known_state : known.states()) {
    for (const auto& state : added.states()) {
      if (known_state->name() != state->name()) continue;
      throw std::logic_error("two hooks have a state with the name '" + state->name() + "'");
    }
  }
}

}  // namespace

void HookList::add(PrioritizedHook added) {
  for (const auto& [priority, known] : hooks_) require_other_names(*known, *added.second);
  const auto place = std::upper_bound(hooks_.begin(), hooks_.end(), added.first,
                                      [](Priority p, const PrioritizedHook& entry) { return p < entry.first; });
  hooks_.insert(place, std::move(added));
}

void HookList::notify(StepEvent event, RunView& run, const LastBatch& last) const {
  switch (event) {
    case StepEvent::forward:
      return each(&Hook::on_forward, run, last);
    case StepEvent::loss:
      return each(&Hook::on_loss, run, last);
    case StepEvent::backward:
      return each(&Hook::on_backward, run, last);
    case StepEvent::update:
      return each(&Hook::on_update, run, last);
  }
}

bool HookList::reads_gradients() const {
  return std::any_of(hooks_.begin(), hooks_.end(),
                     [](const PrioritizedHook& entry) { return entry.second->reads().gradients; });
}

bool HookList::reads_report(const Progress& progress) const {
  return std::any_of(hooks_.begin(), hooks_.end(), [&progress](const PrioritizedHook& entry) {
    const auto& reads = entry.second->reads().report;
    return reads && reads(progress);
  });
}

}  // namespace lockstep::engine
