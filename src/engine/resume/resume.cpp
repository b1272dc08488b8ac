// SPDX-License-Identifier: BSD-3-Clause
#include "engine/resume/resume.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/log/log.hpp>

#include <filesystem>

#include "checkpoints/store/checkpoint_index.hpp"
#include "checkpoints/store/store.hpp"
#include "engine/loop/trainer.hpp"
#include "engine/resume/components.hpp"
#include "engine/resume/run_state.hpp"
#include "engine/saving/candidates.hpp"
#include "engine/saving/memory_copies.hpp"
#include "engine/saving/reading.hpp"
#include "engine/settings/agreed.hpp"
#include "engine/state/paths.hpp"

namespace lockstep::engine {

namespace {

/// Reads the checkpoint to resume from; nullopt for a fresh start.
std::optional<ReadCheckpoint> read_source(Trainer& trainer, const ResumeSettings& settings,
                                          const std::string& directory) {
  RunView& run = trainer.view();
  const std::vector<std::string> found =
      resume_candidates(run.world, settings.source, directory, settings.admits_memory);
  if (found.empty()) return std::nullopt;
  AgreedReading reading{.world = run.world, .store = run.wrapper.store(), .targets = {}};
  // A fresh start needs the initial values.
  if (!settings.allow_fresh) reading.targets = restore_targets(trainer, settings.restore);
  return read_agreed(reading, found, settings);
}

/// NaN in parameters stays NaN: every step from there on would be lost.
void require_finite(const mpi::Communicator& world, const std::string& checkpoint, bool allow_nonfinite) {
  world.all_or_throw([&] {
    if (!world.is_root() || allow_nonfinite) return;
    const std::string words = checkpoints::nonfinite_in(checkpoint, kParameters);
    if (words.empty()) return;
    throw CheckpointError(checkpoint,
                          words + "; select an earlier one with --resume=STEP, or set resume.allow_nonfinite=true")
        .as(CheckpointFault::incompatible);
  });
}

/// The id of the run that wrote a checkpoint; "" where it is not stored or cannot be read.
std::string run_of(const std::string& checkpoint) {
  try {
    const checkpoints::Archive groups = checkpoints::read_groups(checkpoint);
    return groups.has_attribute("/", "run_id") ? groups.text("/", "run_id") : "";
  } catch (const CheckpointError&) {
    return "";
  }
}

/// Requires that the checkpoints of a folder belong to one run. For rank 0.
/// @param chosen   the checkpoint that the run resumes from, there or elsewhere
/// @param is_fork  checkpoints of other runs are renamed instead of being refused
/// @return  the id with which the run continues: that of `chosen`, or "" if the folder has no checkpoint of that run
/// @throws CheckpointError  the folder has checkpoints of another run
std::string claim(const std::string& directory, const std::string& chosen, bool is_fork) {
  const std::string run = run_of(chosen);
  const std::string memory = noted_memory_folder(directory);
  bool is_known_here = !memory.empty() && chosen.starts_with(memory + "/");
  for (const std::int64_t step : checkpoints::list(directory)) {
    const std::string other = checkpoints::checkpoint_of(directory, step);
    const std::string its_run = run_of(other);
    is_known_here = is_known_here || its_run == run;
    if (run.empty() || its_run.empty() || its_run == run) continue;
    if (!is_fork) {
      throw CheckpointError(
          directory, "it contains checkpoints of two runs: " + std::filesystem::path(other).filename().string() +
                         " is of run " + its_run + ", but the run would resume from " + chosen + " of run " + run +
                         "; choose another --run.dir, or set resume.fork=true, which renames those of "
                         "the other run");
    }
    log::warning(other + " belongs to another run and is renamed (resume.fork)");
    checkpoints::set_aside(other);
  }
  return is_known_here ? run : "";
}

/// Adds the checkpoint to the run's lineage: "step 40 digest 0123... ranks 2".
void note_origin(const mpi::Communicator& world, const ReadCheckpoint& from, RunOrigin& origin) {
  world.all_or_throw([&] { origin.parent_digest = checkpoints::read_checkpoint_index(from.path).digest; });
  origin.lineage = checkpoints::text_of(from.archive.array("/meta/lineage")) + "step " +
                   std::to_string(from.archive.integer("/", "step")) + " digest " + origin.parent_digest + " ranks " +
                   std::to_string(from.archive.integer("/", "world_size")) + "\n";
}

void set_later_ones_aside(const mpi::Communicator& world, const std::string& directory, std::int64_t step) {
  world.all_or_throw([&] {
    if (!world.is_root()) return;
    const std::size_t replaced = checkpoints::set_aside_after(directory, step);
    if (replaced > 0) log::info(std::to_string(replaced) + " later checkpoints were renamed to .old-step-...");
  });
}

}  // namespace

std::optional<std::string> load_or_resume(Trainer& trainer, const ResumeSettings& settings,
                                          const std::string& directory, const std::string& config_ini) {
  const mpi::Communicator& world = trainer.view().world;
  const std::optional<ReadCheckpoint> from = read_source(trainer, settings, directory);
  if (!from) return std::nullopt;
  require_finite(world, from->path, settings.allow_nonfinite);
  trainer.view().origin.run_id = text_of_root(world, [&] { return claim(directory, from->path, settings.fork); });
  for (const std::string& difference : restore(trainer, from->archive, settings.restore)) {
    log::warning("resume.partial skips: " + difference);
  }
  note_origin(world, *from, trainer.view().origin);
  const std::int64_t step = trainer.progress().step;
  log::info(
      "restored and verified the state of step " + std::to_string(step) + "; reproducibility: " +
      worst_of({reproducibility_of(trainer, from->archive, settings.restore), by_settings(config_ini, from->archive)})
          .text());
  set_later_ones_aside(world, directory, step);
  return from->path;
}

void limit_starts(const mpi::Communicator& world, const std::string& directory, std::int64_t step,
                  std::optional<int> restarts, std::int64_t max_starts) {
  world.all_or_throw([&] {
    if (!world.is_root() || !restarts) return;
    const std::int64_t count = checkpoints::note_start(directory, step, *restarts == 0);
    if (max_starts == 0 || count <= max_starts) return;
    throw CheckpointError(directory,
                          "the last " + std::to_string(count - 1) + " starts of this job resumed from step " +
                              std::to_string(step) +
                              ", and none reached another checkpoint; see train.log and failure.json for the "
                              "cause, then submit the job again, or raise resume.max_starts");
  });
}

}  // namespace lockstep::engine
