// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include "checkpoints/store/checkpoint_index.hpp"
#include "checkpoints/store/store.hpp"
#include "engine/hooks/hooks.hpp"
#include "engine/session.hpp"
#include "engine/settings/run_bounds.hpp"
#include "engine/state/resume_settings.hpp"

namespace lockstep::engine {

namespace {

/// Why a run of this configuration ends at a checkpoint, and how it is made longer; empty = it does not end there.
std::string end_at(const checkpoints::Archive& groups, const Sections& sections, const RunBounds& bounds,
                   const RestoreOptions& restored) {
  const bool by_steps = bounds.max_steps > 0 && groups.integer("/", "step") >= bounds.max_steps;
  const bool by_epochs =
      !restored.resets_sampler && bounds.max_epochs > 0 && groups.integer("/", "epoch") >= bounds.max_epochs;
  if (by_steps || by_epochs) {
    return "train.max_steps or train.max_epochs ends the run there; nothing was changed. To train longer, raise them";
  }
  const std::string stopped = restored.is_partial ? "" : early_stop_in(groups, sections);
  if (stopped.empty()) return "";
  return stopped + "; nothing was changed. To train longer, change the options of this hook";
}

}  // namespace

std::optional<std::string> finished_at(const mpi::Communicator& world, const Sections& sections,
                                       const std::string& checkpoint) {
  RunBounds bounds;
  RestoreOptions restored;
  world.all_or_throw([&] {
    bounds = RunBounds::from(sections.at("train"));
    restored = ResumeSettings::from(sections).restore;
  });
  std::string finished;
  if (world.is_root()) {
    try {
      const checkpoints::Archive groups = checkpoints::read_groups(checkpoint);
      const std::string end = end_at(groups, sections, bounds, restored);
      if (!end.empty()) {
        checkpoints::verify(checkpoint);
        finished = checkpoint + " is at step " + std::to_string(groups.integer("/", "step")) + ", and " + end;
      }
    } catch (const Error&) {  // the run that resumes says what is wrong with the checkpoint or the configuration
    }
  }
  finished = world.broadcast(finished);
  return finished.empty() ? std::nullopt : std::optional(finished);
}

}  // namespace lockstep::engine
