// SPDX-License-Identifier: BSD-3-Clause
#include "engine/resume/run_claim.hpp"

#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/core/error.hpp>
#include <lockstep/log/log.hpp>

#include <cstdint>
#include <filesystem>

#include "checkpoints/store/checkpoint_index.hpp"
#include "checkpoints/store/store.hpp"

namespace lockstep::engine {

namespace {

/// The id of the run that wrote a checkpoint; "" where it is not stored or cannot be read.
std::string run_of(const std::string& checkpoint) {
  try {
    const checkpoints::Archive groups = checkpoints::read_groups(checkpoint);
    return groups.has_attribute("/", "run_id") ? groups.text("/", "run_id") : "";
  } catch (const CheckpointError&) {
    return "";
  }
}

}  // namespace

std::string claim(const std::string& directory, const std::string& chosen, bool is_fork) {
  const std::string run = run_of(chosen);
  bool is_known_here = false;
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

}  // namespace lockstep::engine
