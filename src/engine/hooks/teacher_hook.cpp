// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/engine/stateful.hpp>

#include "engine/hooks/hooks.hpp"

namespace lockstep::engine {

PrioritizedHook teacher_hook(const std::string& digest) {
  const auto save = [digest](checkpoints::Archive& archive, const std::string& group) {
    archive.set(group, "digest", digest);
  };
  const auto load = [digest](const checkpoints::Archive& archive, const std::string& group) {
    if (archive.text(group, "digest") == digest) return;
    throw CheckpointError(archive.origin(), group,
                          "the run had a teacher with other weights; set distill.from to the same weights, or start a "
                          "new run with init.from");
  };
  return {Priority::normal, callback_hook({.states = {hook_state("teacher", save, load)}})};
}

}  // namespace lockstep::engine
