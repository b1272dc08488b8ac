// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/checkpoints/contents.hpp>
#include <lockstep/checkpoints/finite.hpp>
#include <lockstep/checkpoints/starts.hpp>
#include <lockstep/checkpoints/store.hpp>
#include <lockstep/core/error.hpp>
#include <lockstep/engine/resume.hpp>
#include <lockstep/engine/run_state.hpp>
#include <lockstep/engine/session.hpp>
#include <lockstep/log/log.hpp>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <system_error>

#include "loop/trainer.hpp"
#include "state_names.hpp"

namespace lockstep::engine {

namespace {

namespace fs = std::filesystem;

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

/// "; 1 unfinished and 2 bad ones were ignored", or "".
std::string ignored_in(const std::string& directory) {
  int unfinished = 0;
  int bad = 0;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    unfinished += name.starts_with(".tmp-") || name.starts_with(".trash-") ? 1 : 0;
    bad += name.starts_with(".bad-") ? 1 : 0;
  }
  if (unfinished + bad == 0) return "";
  return "; " + std::to_string(unfinished) + " unfinished and " + std::to_string(bad) + " bad ones were ignored";
}

/// The checkpoints that `resume` admits, the one to take first; none for a fresh start.
std::vector<std::string> candidates(const std::string& resume, const std::string& directory) {
  const std::vector<std::int64_t> steps = checkpoints::list(directory);
  if (resume == "none") {
    if (!steps.empty()) {
      throw ConfigError("run.dir already holds a checkpoint (" + checkpoints::checkpoint_of(directory, steps.back()) +
                        "); continue it with --resume=auto, or choose another --run.dir");
    }
    return {};
  }
  if (resume == "auto" || resume == "must") {
    if (steps.empty() && resume == "must") {
      throw CheckpointError(directory, "resume=must, but there is no checkpoint (no folder named step-000000000000)" +
                                           ignored_in(directory));
    }
    std::vector<std::string> newest_first;
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
      newest_first.push_back(checkpoints::checkpoint_of(directory, *step));
    }
    return newest_first;
  }
  if (is_number(resume)) {
    if (resume.size() > 12 || !std::binary_search(steps.begin(), steps.end(), std::stoll(resume))) {
      throw CheckpointError(directory, "resume=" + resume + ", but there is no checkpoint of that step");
    }
    return {checkpoints::checkpoint_of(directory, std::stoll(resume))};
  }
  return {resume};
}

/// Rank 0 looks; everyone hears the same.
std::vector<std::string> agree_on(const mpi::Communicator& world, const std::string& resume,
                                  const std::string& directory) {
  std::string lines;
  world.together([&] {
    if (!world.is_root()) return;
    for (const std::string& candidate : candidates(resume, directory)) lines += candidate + "\n";
  });
  std::istringstream text(world.broadcast(lines));
  std::vector<std::string> agreed;
  for (std::string line; std::getline(text, line);) agreed.push_back(line);
  return agreed;
}

/// Why the checkpoint cannot be taken by some rank, and whether it is to be set aside; each rank reads and checks it.
struct Refusal {
  std::string reason;
  bool is_damaged = false;
};

/// @param homes  where arrays go; those who share parameters read a part each
std::optional<Refusal> try_read(Strategy& strategy, const std::string& path, const checkpoints::Homes& homes,
                                checkpoints::Archive& archive) {
  std::string words;
  strategy.model().parameters().write([&] {
    try {
      archive = checkpoints::read(path, homes);
    } catch (const CheckpointError& error) {
      // Other errors say nothing against the checkpoint: a disk that cannot be read, another version of the program.
      const bool is_damaged = error.fault() == CheckpointFault::damaged || error.fault() == CheckpointFault::missing ||
                              error.fault() == CheckpointFault::other_kind;
      words = (is_damaged ? "d" : "-") + std::string(error.what());
    } catch (const std::exception& error) {
      words = "-" + path + ": " + error.what();
    }
  });
  for (const std::string& said : strategy.world().all_gather(words)) {
    if (!said.empty()) return Refusal{said.substr(1), said.front() == 'd'};
  }
  return std::nullopt;
}

/// The newest that every rank can read. Damaged ones are renamed, so that they are neither counted nor tried again.
std::string first_readable(Strategy& strategy, const std::vector<std::string>& found, const Section& resume,
                           const checkpoints::Homes& homes, checkpoints::Archive& archive) {
  const mpi::Communicator& world = strategy.world();
  const auto tries = static_cast<std::size_t>(1 + resume.integer("max_fallback"));
  std::string reasons;
  for (std::size_t i = 0; i < std::min(found.size(), tries); ++i) {
    const auto refusal = try_read(strategy, found[i], homes, archive);
    if (!refusal) return found[i];
    if (!refusal->is_damaged) throw_agreed(ExitCode::checkpoint, refusal->reason);
    reasons += (reasons.empty() ? "" : "; ") + refusal->reason;
    world.together([&] {
      if (!world.is_root()) return;
      log::warning("passing over a checkpoint, which is renamed to " + checkpoints::quarantine(found[i]) + ": " +
                   refusal->reason);
    });
  }
  if (resume.boolean("allow_fresh")) {
    log::warning("no checkpoint can be read; starting afresh, as resume.allow_fresh says");
    return "";
  }
  throw_agreed(ExitCode::checkpoint,
               (found.size() > tries ? "none of the " + std::to_string(tries) + " newest checkpoints can be read"
                                     : "no checkpoint can be read") +
                   std::string(", and a run that had some does not start afresh by itself: ") + reasons +
                   "; restore a copy, or set resume.allow_fresh=true");
}

/// NaN in parameters stays NaN: every step from there on would be lost.
void require_finite(const mpi::Communicator& world, const std::string& chosen, const Section& resume) {
  world.together([&] {
    if (!world.is_root() || resume.boolean("allow_nonfinite")) return;
    const std::string words = checkpoints::nonfinite_in(chosen, kParameters);
    if (words.empty()) return;
    throw CheckpointError(chosen,
                          words + "; take an earlier one with --resume=STEP, or set resume.allow_nonfinite=true")
        .as(CheckpointFault::incompatible);
  });
}

/// The id of the run that wrote a checkpoint; "" where it does not tell or cannot be read.
std::string run_of(const std::string& checkpoint) {
  try {
    const checkpoints::Archive groups = checkpoints::read_groups(checkpoint);
    return groups.has_attribute("/", "run_id") ? groups.text("/", "run_id") : "";
  } catch (const CheckpointError&) {
    return "";
  }
}

/// The checkpoints of a folder are those of one run. Others are refused, or set aside where `is_fork` says so.
/// @return  the id that the run goes on with: that of `chosen`, unless this is the first one of a copied beginning
std::string claim(const std::string& directory, const std::string& chosen, bool is_fork) {
  const std::string run = run_of(chosen);
  bool is_known_here = false;
  for (const std::int64_t step : checkpoints::list(directory)) {
    const std::string other = checkpoints::checkpoint_of(directory, step);
    const std::string its_run = run_of(other);
    is_known_here = is_known_here || its_run == run;
    if (run.empty() || its_run.empty() || its_run == run) continue;
    if (!is_fork) {
      throw CheckpointError(directory, "it holds checkpoints of two runs: " + fs::path(other).filename().string() +
                                           " is of run " + its_run + ", but the run would go on from " + chosen +
                                           " of run " + run +
                                           "; choose another --run.dir, or set resume.fork=true, which sets those of "
                                           "the other run aside");
    }
    log::warning(other + " is of another run and is set aside, as resume.fork says");
    checkpoints::set_aside(other);
  }
  return is_known_here ? run : "";
}

/// Adds the checkpoint to the run's lineage: "step 40 digest 0123... ranks 2".
void note_origin(Trainer& trainer, const checkpoints::Archive& archive, const std::string& chosen) {
  RunOrigin& origin = trainer.run().origin;
  trainer.view().world.together([&] { origin.parent_digest = checkpoints::read_contents(chosen).digest; });
  origin.lineage = checkpoints::text_of(archive.array("/meta/lineage")) + "step " +
                   std::to_string(archive.integer("/", "step")) + " digest " + origin.parent_digest + " ranks " +
                   std::to_string(archive.integer("/", "world_size")) + "\n";
}

}  // namespace

void check_resume(const mpi::Communicator& world, const std::string& resume, const std::string& directory) {
  agree_on(world, resume, directory);
}

std::optional<std::string> load_or_resume(Trainer& trainer, const Sections& sections, const std::string& directory) {
  const mpi::Communicator& world = trainer.view().world;
  const std::string& wanted = sections.at("").text("resume");
  const Section& resume = sections.at("resume");
  RestoreOptions options;
  world.together([&] { options = restore_options(resume); });
  const std::vector<std::string> found = agree_on(world, wanted, directory);
  if (found.empty()) return std::nullopt;
  Strategy& strategy = trainer.run().strategy;
  checkpoints::Homes homes;
  if (!resume.boolean("allow_fresh")) homes = homes_of(strategy, options);  // else initial values may be needed
  checkpoints::Archive archive;
  std::string chosen = found.front();
  if (wanted == "auto" || wanted == "must") {
    chosen = first_readable(strategy, found, resume, homes, archive);
    if (chosen.empty()) return std::nullopt;
  } else if (const auto refusal = try_read(strategy, chosen, homes, archive)) {
    throw_agreed(ExitCode::checkpoint, refusal->reason);
  }
  require_finite(world, chosen, resume);
  std::string run;
  world.together([&] {
    if (world.is_root()) run = claim(directory, chosen, resume.boolean("fork"));
  });
  trainer.run().origin.run_id = world.broadcast(run);
  for (const std::string& difference : restore(trainer, archive, options)) {
    log::warning("resume.partial passes over: " + difference);
  }
  note_origin(trainer, archive, chosen);
  log::info("the state of step " + std::to_string(trainer.progress().step) + " is restored and compared; exactness " +
            exactness_of(trainer, archive, options));
  world.together([&] {
    if (!world.is_root()) return;
    const std::size_t replaced = checkpoints::set_aside_after(directory, trainer.progress().step);
    if (replaced > 0) log::info(std::to_string(replaced) + " later checkpoints were renamed to .old-step-...");
  });
  return chosen;
}

void limit_starts(const mpi::Communicator& world, const std::string& directory, std::int64_t step,
                  std::optional<int> restarts, std::int64_t most) {
  world.together([&] {
    if (!world.is_root() || !restarts) return;
    const std::int64_t count = checkpoints::note_start(directory, step, *restarts == 0);
    if (most == 0 || count <= most) return;
    throw CheckpointError(directory,
                          "the last " + std::to_string(count - 1) + " starts of this job went on from step " +
                              std::to_string(step) +
                              ", and none came to another checkpoint: see in train.log and failure.json what "
                              "ended them, then submit the job anew, or raise resume.max_starts");
  });
}

}  // namespace lockstep::engine
