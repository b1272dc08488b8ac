// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/checkpoints/store.hpp>
#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <system_error>
#include <unistd.h>

#include "disk.hpp"
#include "leftovers.hpp"
#include "state_file.hpp"

namespace lockstep::checkpoints {

namespace fs = std::filesystem;

namespace {

constexpr const char* kStateFile = "state.h5";
constexpr const char* kHint = "LATEST";
constexpr std::string_view kPrefix = "step-";
constexpr std::size_t kStepDigits = 12;

std::optional<std::int64_t> step_of(const std::string& name) {
  if (name.size() != kPrefix.size() + kStepDigits || !name.starts_with(kPrefix)) return std::nullopt;
  const std::string digits = name.substr(kPrefix.size());
  if (!std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; })) return std::nullopt;
  return std::stoll(digits);
}

std::string state_file_in(const std::string& folder) { return folder + "/" + kStateFile; }

/// A short file that is there whole or not at all.
void replace_text(const std::string& directory, const std::string& name, const std::string& text) {
  const std::string temporary = directory + "/." + name + ".tmp";
  remove_tree(temporary);
  NewFile file(temporary);
  file.write(0, std::as_bytes(std::span(text)));
  file.sync();
  file.close();
  move(temporary, directory + "/" + name);
  sync_folder(directory);
}

bool is_readable(const std::string& state_file) {
  try {
    std::uint64_t step = 0;
    read_state_file(state_file, step);
    return true;
  } catch (const CheckpointError&) {
    return false;
  }
}

void set_aside(const std::string& directory, std::int64_t step, const char* prefix) {
  std::string aside;
  for (int number = 1; aside.empty() || exists(aside); ++number) {
    aside = directory + "/" + prefix + folder_name(step) + "." + std::to_string(number);
  }
  move(directory + "/" + folder_name(step), aside);
}

/// Makes room for a checkpoint of a step that has one already.
/// @return  false when the one that is there is the same
bool make_room(const std::string& directory, std::int64_t step, const Seal& seal) {
  const std::string folder = directory + "/" + folder_name(step);
  if (!exists(folder)) return true;
  if (is_readable(state_file_in(folder))) {
    if (read_seal(state_file_in(folder)) == seal) return false;
    throw CheckpointError(folder, "a checkpoint of this step with other content is there already; move it away");
  }
  set_aside(directory, step, ".bad-");
  return true;
}

/// Removes a temporary folder when the write that made it fails.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {
    if (exists(path_)) remove_tree(path_);  // of this very process: an earlier failure could not remove it
    make_folder(path_);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;  // readers ignore it, and retain() tries again
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }

  const std::string& path() const noexcept { return path_; }
  void become(const std::string& folder) {
    move(path_, folder);
    path_.clear();
  }

 private:
  std::string path_;
};

void write_folder(const std::string& directory, std::int64_t step, const Archive& archive) {
  make_folders(directory);
  TemporaryFolder temporary(directory + "/" + temporary_name(folder_name(step)));
  const Seal seal = write_state_file(state_file_in(temporary.path()), step, archive);
  sync_folder(temporary.path());
  if (make_room(directory, step, seal)) temporary.become(directory + "/" + folder_name(step));
}

}  // namespace

std::string folder_name(std::int64_t step) {
  std::string digits = std::to_string(step);
  if (step < 0 || digits.size() > kStepDigits) throw std::logic_error("no checkpoint can have step " + digits);
  return std::string(kPrefix) + std::string(kStepDigits - digits.size(), '0') + digits;
}

std::vector<std::int64_t> list(const std::string& directory) {
  std::vector<std::int64_t> steps;
  for (const std::string& name : names_in(directory)) {
    const auto step = step_of(name);
    std::error_code ignored;
    if (step && fs::symlink_status(directory + "/" + name, ignored).type() == fs::file_type::directory) {
      steps.push_back(*step);
    }
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::optional<std::string> latest(const std::string& directory) {
  const std::vector<std::int64_t> steps = list(directory);
  if (steps.empty()) return std::nullopt;
  return directory + "/" + folder_name(steps.back());
}

std::size_t set_aside_after(const std::string& directory, std::int64_t step) {
  std::size_t count = 0;
  for (const std::int64_t later : list(directory)) {
    if (later <= step) continue;
    set_aside(directory, later, ".old-");
    ++count;
  }
  if (count > 0) sync_folder(directory);
  return count;
}

std::string write(const std::string& directory, std::int64_t step, const Archive& archive) {
  const std::string folder = directory + "/" + folder_name(step);
  try {
    write_folder(directory, step, archive);
  } catch (const CheckpointError& error) {
    throw CheckpointError(folder,
                          std::string("could not be saved, earlier checkpoints are untouched: ") + error.what());
  }
  try {
    sync_folder(directory);
  } catch (const CheckpointError& error) {
    throw CheckpointError(folder, std::string("was saved, but may not survive a power cut: ") + error.what());
  }
  try {
    replace_text(directory, kHint, folder_name(step) + "\n");
  } catch (const CheckpointError&) {
    // The checkpoint is safe; LATEST is a help for people, and no program believes it.
  }
  return folder;
}

Archive read(const std::string& path) {
  std::error_code ignored;
  const bool is_folder = fs::is_directory(path, ignored);
  const std::string file = is_folder ? state_file_in(path) : path;
  if (is_folder && !exists(file)) {
    const auto newest = latest(path);
    throw CheckpointError(path, newest ? "it is a folder of checkpoints; name one of them, such as " + *newest
                                       : "it holds no state.h5, so it is no checkpoint")
        .as(CheckpointFault::missing);
  }
  std::uint64_t step = 0;
  Archive archive = read_state_file(file, step);
  const auto named = step_of(fs::absolute(file).parent_path().filename().string());
  if (named && static_cast<std::uint64_t>(*named) != step) {
    throw CheckpointError(file,
                          "it was written at step " + std::to_string(step) + ", but its folder has another number");
  }
  return archive;
}

std::vector<RetentionDecision> plan_retention(const std::string& directory, std::int64_t keep_last) {
  const auto kept = static_cast<std::size_t>(std::max<std::int64_t>(keep_last, 1));
  std::vector<RetentionDecision> plan;
  std::size_t finished = 0;
  const std::vector<std::int64_t> steps = list(directory);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    RetentionDecision decision{.name = folder_name(*step), .reason = "of the newest " + std::to_string(kept)};
    try {
      read_seal(state_file_in(directory + "/" + decision.name));
      decision.is_kept = ++finished <= kept;
      if (!decision.is_kept) decision.reason = "older than the newest " + std::to_string(kept);
    } catch (const CheckpointError&) {
      decision.reason = "not finished or not readable: it neither counts nor is deleted";
    }
    plan.push_back(std::move(decision));
  }
  std::reverse(plan.begin(), plan.end());
  return plan;
}

void retain(const std::string& directory, std::int64_t keep_last) {
  for (const RetentionDecision& decision : plan_retention(directory, keep_last)) {
    if (!decision.is_kept) discard(directory, decision.name);
  }
  remove_leftovers(directory);
}

void probe(const std::string& directory) {
  make_folders(directory);
  TemporaryFolder temporary(directory + "/" + temporary_name("probe"));
  const std::array<std::byte, 4096> bytes = {};
  NewFile file(temporary.path() + "/probe");
  file.write(0, bytes);
  file.sync();
  file.close();
  move(temporary.path() + "/probe", temporary.path() + "/renamed");
  sync_folder(temporary.path());
}

}  // namespace lockstep::checkpoints
