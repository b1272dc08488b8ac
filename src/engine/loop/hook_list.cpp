// SPDX-License-Identifier: BSD-3-Clause
#include "engine/loop/hook_list.hpp"

#include <algorithm>
#include <stdexcept>

namespace lockstep::engine {

void HookList::add(Priority priority, std::unique_ptr<Hook> hook) {
  for (const auto& [known_priority, known] : hooks_) {
    if (hook->state_name().empty() || known->state_name() != hook->state_name()) continue;
    throw std::logic_error("two hooks have a state with the name '" + hook->state_name() + "'");
  }
  const auto place = std::upper_bound(hooks_.begin(), hooks_.end(), priority,
                                      [](Priority p, const PrioritizedHook& entry) { return p < entry.first; });
  hooks_.emplace(place, priority, std::move(hook));
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
                     [](const PrioritizedHook& entry) { return entry.second->reads_gradients(); });
}

bool HookList::reads_report(const Progress& progress) const {
  return std::any_of(hooks_.begin(), hooks_.end(),
                     [&progress](const PrioritizedHook& entry) { return entry.second->reads_report(progress); });
}

}  // namespace lockstep::engine
