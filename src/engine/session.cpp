// SPDX-License-Identifier: BSD-3-Clause
#include "engine/session.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/engine/registry.hpp>

#include <filesystem>

#include "checkpoints/store/checkpoint_index.hpp"
#include "checkpoints/store/store.hpp"
#include "core/text/text.hpp"
#include "engine/hooks/hooks.hpp"
#include "engine/settings/agreed.hpp"
#include "engine/settings/train_settings.hpp"
#include "engine/state/resume_settings.hpp"
#include "engine/training_run.hpp"
#include "models/losses/task_table.hpp"

namespace lockstep::engine {

namespace {

namespace fs = std::filesystem;

/// `from` itself if it is a checkpoint, else the newest one in it or in its folder ckpt.
std::string find_checkpoint(const std::string& from) {
  if (!fs::exists(from)) throw CheckpointError(from, "does not exist");
  if (const auto newest = checkpoints::latest_of_run(from)) return *newest;
  const bool is_checkpoint = fs::is_regular_file(from) || fs::exists(from + "/state.h5");
  if (is_checkpoint) return from;
  throw CheckpointError(from, "contains no checkpoint (no folder step-000000000000, neither here nor in ckpt/)");
}

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

Outcome train(const mpi::Communicator& world, TrainRequest request) {
  return TrainingRun(world, std::move(request)).run();
}

void request_stop() noexcept { RunRequests::stop(); }

std::vector<std::string> reported_metrics() { return models::reported_metrics(); }

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

StoredConfig stored_config(const mpi::Communicator& world, const std::string& from) {
  StoredConfig stored;
  world.all_or_throw([&] {
    if (!world.is_root()) return;
    stored.checkpoint = find_checkpoint(from);
    const checkpoints::Archive archive = checkpoints::read(stored.checkpoint);
    stored.config_ini = checkpoints::text_of(archive.array("/meta/config_ini"));
  });
  return {world.broadcast(stored.checkpoint), world.broadcast(stored.config_ini)};
}

}  // namespace lockstep::engine
