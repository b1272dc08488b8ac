// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/engine/hook.hpp>

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep::engine {

/// The hooks of a run, in the order in which they are called: by priority, then by registration.
class HookList {
 public:
  /// @throws std::logic_error  another hook has a state of the same name
  void add(PrioritizedHook added);

  /// Calls one method of every hook, such as `each(&Hook::before_step, run)`.
  template <class... Parameters>
  void each(void (Hook::*method)(Parameters...), std::type_identity_t<Parameters>... arguments) const {
    for (const auto& [priority, hook] : hooks_) (hook.get()->*method)(arguments...);
  }
  /// Calls the method of every hook that belongs to the event.
  void notify(StepEvent event, RunView& run, const LastBatch& last) const;

  /// Whether any hook reads gradients in on_backward.
  bool reads_gradients() const;
  /// Whether any hook of this rank reads the report of the step that leads there.
  bool reads_report(const Progress& progress) const;

  auto begin() const noexcept { return hooks_.begin(); }
  auto end() const noexcept { return hooks_.end(); }
  std::size_t size() const noexcept { return hooks_.size(); }
  Hook& at(std::size_t i) const { return *hooks_.at(i).second; }

 private:
  std::vector<PrioritizedHook> hooks_;
};

}  // namespace lockstep::engine
