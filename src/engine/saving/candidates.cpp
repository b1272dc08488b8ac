// SPDX-License-Identifier: BSD-3-Clause
#include "engine/saving/candidates.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <system_error>

#include "checkpoints/store/store.hpp"
#include "core/text/text.hpp"
#include "engine/saving/local_copies.hpp"
#include "engine/saving/memory_copies.hpp"
#include "engine/settings/agreed.hpp"

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

/// Whether a copy is of the step of a checkpoint, or of an earlier one. The names tell the steps.
bool is_not_newer(const std::string& copy, const std::string& checkpoint) {
  return fs::path(copy).stem() <= fs::path(checkpoint).stem();
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
                                           const std::string& directory, bool admits_memory) {
  std::optional<std::string> copy;
  if (admits_memory && (source == "auto" || source == "must")) copy = memory_candidate(world, directory);
  return lines_in(text_of_root(world, [&] {
    const auto newest = copy ? checkpoints::latest(directory) : std::nullopt;
    // Checkpoints on the disk were written with more care: of the same step, they come first.
    if (newest && is_not_newer(*copy, *newest)) copy.reset();
    std::vector<std::string> all = candidates(copy ? "auto" : source, directory);
    if (copy) all.insert(all.begin(), *copy);
    return as_lines(all);
  }));
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
