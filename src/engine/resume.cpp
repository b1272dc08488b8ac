// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/checkpoints/store.hpp>
#include <lockstep/core/error.hpp>
#include <lockstep/engine/resume.hpp>
#include <lockstep/engine/run_state.hpp>
#include <lockstep/engine/session.hpp>
#include <lockstep/log/log.hpp>

#include <algorithm>

namespace lockstep::engine {

namespace {

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

/// What `resume` names, seen from this rank; empty for a fresh start.
std::string choose(const std::string& resume, const std::string& directory) {
  const std::vector<std::int64_t> steps = checkpoints::list(directory);
  if (resume == "none") {
    if (!steps.empty()) {
      throw ConfigError("run.dir already holds a checkpoint (" + directory + "/" +
                        checkpoints::folder_name(steps.back()) +
                        "); continue it with --resume=auto, or choose another --run.dir");
    }
    return "";
  }
  if (resume == "auto" || resume == "must") {
    if (!steps.empty()) return directory + "/" + checkpoints::folder_name(steps.back());
    if (resume == "must") {
      throw CheckpointError(directory, "resume=must, but there is no checkpoint (no folder named step-000000000000)");
    }
    return "";
  }
  if (is_number(resume)) {
    if (resume.size() > 12 || !std::binary_search(steps.begin(), steps.end(), std::stoll(resume))) {
      throw CheckpointError(directory, "resume=" + resume + ", but there is no checkpoint of that step");
    }
    return directory + "/" + checkpoints::folder_name(std::stoll(resume));
  }
  return resume;
}

/// Rank 0 looks; everyone hears the same.
std::string agree_on(const mpi::Communicator& world, const std::string& resume, const std::string& directory) {
  std::string chosen;
  world.together([&] {
    if (world.is_root()) chosen = choose(resume, directory);
  });
  return world.broadcast(chosen);
}

}  // namespace

void check_resume(const mpi::Communicator& world, const std::string& resume, const std::string& directory) {
  agree_on(world, resume, directory);
}

std::optional<std::string> load_or_resume(Trainer& trainer, const std::string& resume, const std::string& directory) {
  const mpi::Communicator& world = trainer.strategy().world();
  const std::string chosen = agree_on(world, resume, directory);
  if (chosen.empty()) return std::nullopt;
  checkpoints::Archive archive;
  world.together([&] { archive = checkpoints::read(chosen); });
  restore(trainer, archive);
  world.together([&] {
    if (!world.is_root()) return;
    const std::size_t replaced = checkpoints::set_aside_after(directory, trainer.progress().step);
    if (replaced > 0) log::info(std::to_string(replaced) + " later checkpoints were renamed to .old-step-...");
  });
  return chosen;
}

}  // namespace lockstep::engine
