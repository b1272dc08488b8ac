// SPDX-License-Identifier: BSD-3-Clause
#include "engine/state/candidates.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <system_error>

#include "checkpoints/store/checkpoint_index.hpp"
#include "checkpoints/store/store.hpp"
#include "core/text_stream.hpp"
#include "engine/hooks/hooks.hpp"
#include "engine/loop/run_bounds.hpp"
#include "engine/saving/local_copies.hpp"
#include "engine/setup/session.hpp"
#include "engine/state/resume_settings.hpp"

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

std::vector<std::string> newest_first(const std::vector<std::int64_t>& steps, const std::string& directory) {
  std::vector<std::string> paths;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    paths.push_back(checkpoints::checkpoint_of(directory, *step));
  }
  return paths;
}

void require_none(const std::string& directory) {
  const auto newest = checkpoints::latest(directory);
  if (!newest) return;
  throw ConfigError("run.dir already contains a checkpoint (" + *newest +
                    "); resume it with --resume=auto, or choose another --run.dir");
}

std::vector<std::string> candidates(const std::string& source, const std::string& directory) {
  const std::vector<std::int64_t> steps = checkpoints::list(directory);
  if (source == "none") {
    require_none(directory);
    return {};
  }
  if (source == "must" && steps.empty()) {
    throw CheckpointError(directory, "resume=must, but there is no checkpoint (no folder named step-000000000000)" +
                                         ignored_in(directory));
  }
  if (source == "auto" || source == "must") return newest_first(steps, directory);
  if (!is_number(source)) return {source};
  if (source.size() > 12 || !std::binary_search(steps.begin(), steps.end(), std::stoll(source))) {
    throw CheckpointError(directory, "resume=" + source + ", but there is no checkpoint of this step");
  }
  return {checkpoints::checkpoint_of(directory, std::stoll(source))};
}

}  // namespace

std::vector<std::string> resume_candidates(const mpi::Communicator& world, const std::string& source,
                                           const std::string& directory) {
  std::string lines;
  world.all_or_throw([&] {
    if (!world.is_root()) return;
    for (const std::string& candidate : candidates(source, directory)) lines += candidate + "\n";
  });
  TextReader text(world.broadcast(lines));
  std::vector<std::string> agreed;
  for (std::string line; std::getline(text, line);) agreed.push_back(line);
  return agreed;
}

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

std::optional<std::string> check_resume(const mpi::Communicator& world, const std::string& resume,
                                        const std::string& directory, const std::string& local_dir) {
  bool has_local = false;
  world.all_or_throw([&] {
    if (!world.is_root() || local_dir.empty()) return;
    const std::string local = local_folder(local_dir, directory);
    if (resume == "none") require_none(local);
    has_local = checkpoints::latest(local).has_value();
  });
  // The checkpoints on the local disk are copied to the run's folder before the run resumes.
  if (!world.agree(!has_local)) return std::nullopt;
  const std::vector<std::string> found = resume_candidates(world, resume, directory);
  return found.empty() ? std::nullopt : std::optional(found.front());
}

}  // namespace lockstep::engine
