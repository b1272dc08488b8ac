// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/store/store.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>

#include "checkpoints/disk/disk.hpp"
#include "checkpoints/format/state_file.hpp"
#include "checkpoints/store/folder.hpp"
#include "core/text/text_stream.hpp"

namespace lockstep::checkpoints {

namespace fs = std::filesystem;

namespace {

constexpr const char* kHint = "LATEST";
constexpr std::string_view kSingle = ".h5";

bool is_readable(const std::string& checkpoint) {
  try {
    verify(checkpoint);
    return true;
  } catch (const CheckpointError&) {
    return false;
  }
}

std::vector<Seal> seals_of(const std::vector<std::string>& files) {
  std::vector<Seal> seals;
  for (const std::string& file : files) seals.push_back(read_seal(file));
  return seals;
}

std::string prefixed(const std::string& checkpoint, const char* prefix) {
  const fs::path path(checkpoint);
  std::string aside;
  for (int number = 1; aside.empty() || exists(aside); ++number) {
    aside = path.parent_path() / (prefix + path.filename().string() + "." + std::to_string(number));
  }
  move(checkpoint, aside);
  return aside;
}

/// Makes room for a checkpoint of a step that has one already.
/// @return  false when the one that is there is the same
bool make_room(const std::string& directory, std::int64_t step, const std::vector<Seal>& seals) {
  const std::string there = checkpoint_of(directory, step);
  if (!exists(there)) return true;
  if (is_readable(there)) {
    if (seals_of(state_files(there)) == seals) return false;
    throw CheckpointError(there, "a different checkpoint of this step already exists; move it to another folder");
  }
  quarantine(there);
  return true;
}

/// Neither the file nor its folder may be named after another step.
void require_named_after(std::uint64_t step, const std::string& state_file) {
  const fs::path file = fs::absolute(state_file);
  const auto in_folder = step_of(file.parent_path().filename().string());
  const auto named = in_folder ? in_folder : step_of(file.filename().string());
  if (named && static_cast<std::uint64_t>(*named) != step) {
    throw CheckpointError(state_file, "it was written at step " + std::to_string(step) + ", but its " +
                                          (in_folder ? "folder" : "name") + " has another number");
  }
}

constexpr std::size_t kCopiedAtOnce = std::size_t{8} << 20;

/// Copies a file and makes the copy durable.
void copy_file(const std::string& from, const std::string& destination, const std::stop_token& stop) {
  const ExistingFile source(from);
  NewFile target(destination);
  target.reserve(source.size());
  std::vector<std::byte> bytes(std::min<std::uint64_t>(source.size(), kCopiedAtOnce));
  for (std::uint64_t position = 0; position < source.size(); position += bytes.size()) {
    if (stop.stop_requested()) throw CheckpointError(destination, "the copy was interrupted");
    const std::span<std::byte> piece(bytes.data(), std::min<std::uint64_t>(bytes.size(), source.size() - position));
    source.read(position, piece);
    target.write(position, piece);
  }
  target.sync();
  target.close();
}

constexpr const char* kStarts = "STARTS";

}  // namespace

std::vector<std::int64_t> list(const std::string& directory) {
  std::vector<std::int64_t> steps;
  for (const std::string& name : names_in(directory)) {
    const auto step = step_of(name);
    if (!step) continue;
    std::error_code ignored;
    const fs::file_type type = fs::symlink_status(directory + "/" + name, ignored).type();
    if (type == (name.ends_with(kSingle) ? fs::file_type::regular : fs::file_type::directory)) steps.push_back(*step);
  }
  std::ranges::sort(steps);
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  return steps;
}

std::optional<std::string> latest(const std::string& directory) {
  const std::vector<std::int64_t> steps = list(directory);
  if (steps.empty()) return std::nullopt;
  return checkpoint_of(directory, steps.back());
}

std::optional<std::string> latest_of_run(const std::string& path) {
  for (const std::string& directory : {path, path + "/ckpt"}) {
    std::error_code unreadable;
    if (!fs::is_directory(directory, unreadable)) continue;
    if (auto newest = latest(directory)) return newest;
  }
  return std::nullopt;
}

std::string checkpoint_of(const std::string& directory, std::int64_t step) {
  const std::string folder = directory + "/" + folder_name(step);
  return !exists(folder) && exists(folder + std::string(kSingle)) ? folder + std::string(kSingle) : folder;
}

std::string quarantine(const std::string& checkpoint) { return prefixed(checkpoint, ".bad-"); }

std::string set_aside(const std::string& checkpoint) { return prefixed(checkpoint, ".old-"); }

std::size_t set_aside_after(const std::string& directory, std::int64_t step) {
  std::size_t count = 0;
  for (const std::int64_t later : list(directory)) {
    if (later <= step) continue;
    set_aside(checkpoint_of(directory, later));
    ++count;
  }
  if (count > 0) sync_folder(directory);
  return count;
}

std::string stage(const std::string& directory, std::int64_t step) {
  make_folders(directory);
  std::string staged = directory + "/" + temporary_name(folder_name(step));
  if (exists(staged)) remove_tree(staged);  // left by this process after a failure
  make_folder(staged);
  return staged;
}

std::string write_part(const std::string& staged, std::int64_t step, const Archive& archive, FilePart part,
                       int threads) {
  archive.await_arrival();
  std::string file = staged + "/" + part_name(part.number, part.count);
  write_state_file(file, step, part.count == 1 ? archive : archive_part(archive, part), part, threads);
  return file;
}

std::string commit(const std::string& directory, const std::string& staged, std::int64_t step,
                   const CommitOptions& options) {
  std::string folder = directory + "/" + folder_name(step);
  try {
    std::vector<std::string> files;
    for (std::uint32_t i = 0; i < options.parts; ++i) files.push_back(staged + "/" + part_name(i, options.parts));
    const std::vector<Seal> seals = seals_of(files);
    if (options.parts > 1) write_file(staged + "/" + kManifest, manifest_text(step, seals));
    sync_folder(staged);
    const bool is_new = make_room(directory, step, seals);
    if (is_new && options.is_single_file) {
      folder += kSingle;
      move(files.front(), folder);
    } else if (is_new) {
      move(staged, folder);
    }
    if (!is_new || options.is_single_file) remove_tree(staged);
  } catch (const CheckpointError& error) {
    abandon(staged);
    throw CheckpointError(folder,
                          std::string("could not be saved; earlier checkpoints are not affected: ") + error.what());
  }
  try {
    sync_folder(directory);
  } catch (const CheckpointError& error) {
    throw CheckpointError(folder, std::string("was saved, but may be lost after a power failure: ") + error.what());
  }
  try {
    replace_file(directory, kHint, fs::path(folder).filename().string() + "\n");
  } catch (const CheckpointError&) {
    // The checkpoint is safe; LATEST is a help for people, and no program believes it.
  }
  return folder;
}

void abandon(const std::string& staged) noexcept {
  std::error_code ignored;  // readers ignore it, and retain() tries again
  fs::remove_all(staged, ignored);
}

std::string write(const std::string& directory, std::int64_t step, const Archive& archive) {
  std::string staged;
  try {
    staged = stage(directory, step);
    write_part(staged, step, archive, {}, io_threads());
  } catch (const CheckpointError& error) {
    if (!staged.empty()) abandon(staged);
    throw CheckpointError(directory + "/" + folder_name(step),
                          std::string("could not be saved; earlier checkpoints are not affected: ") + error.what());
  }
  return commit(directory, staged, step, {});
}

std::string copy(const std::string& checkpoint, const std::string& directory, const std::stop_token& stop) {
  const std::vector<std::string> files = state_files(checkpoint);
  const std::int64_t step = step_of(fs::path(checkpoint).filename().string()).value();
  const auto parts = static_cast<std::uint32_t>(files.size());
  const std::string staged = stage(directory, step);
  try {
    for (std::uint32_t i = 0; i < parts; ++i) copy_file(files[i], staged + "/" + part_name(i, parts), stop);
  } catch (const CheckpointError&) {
    abandon(staged);
    throw;
  }
  return commit(directory, staged, step, {.parts = parts, .is_single_file = checkpoint.ends_with(kSingle)});
}

void remove(const std::string& checkpoint) {
  const fs::path path(checkpoint);
  const std::string directory = path.parent_path().string();
  discard(directory, path.filename().string());
  std::error_code ignored;  // LATEST is a help for people
  if (!latest(directory)) fs::remove(directory + "/" + kHint, ignored);
}

Archive read(const std::string& path, const RestoreTargets& targets) {
  const std::vector<std::string> files = state_files(path);
  std::uint64_t step = 0;
  Archive archive = read_state_file(files.front(), step, targets);
  for (std::size_t i = 1; i < files.size(); ++i) archive.append(read_state_file(files[i], step, targets));
  require_named_after(step, files.front());
  return archive;
}

void verify(const std::string& path, int threads) {
  const std::vector<std::string> files = state_files(path);
  std::uint64_t step = 0;
  for (const std::string& file : files) step = verify_state_file(file, threads);
  require_named_after(step, files.front());
}

void probe(const std::string& directory) {
  make_folders(directory);
  StagedFolder temporary(directory + "/" + temporary_name("probe"));
  const std::array<std::byte, 4096> bytes = {};
  NewFile file(temporary.path() + "/probe");
  file.write(0, bytes);
  file.sync();
  file.close();
  move(temporary.path() + "/probe", temporary.path() + "/renamed");
  sync_folder(temporary.path());
}

RequeueCount read_requeue_count(const std::string& directory) {
  FileReader file(directory + "/" + kStarts);
  std::string step;
  std::string count;
  RequeueCount count_of_starts;
  const bool is_whole = static_cast<bool>(file >> step >> count_of_starts.step >> count >> count_of_starts.count);
  const bool is_known =
      is_whole && step == "step" && count == "count" && count_of_starts.step >= 0 && count_of_starts.count > 0;
  return is_known ? count_of_starts : RequeueCount();
}

std::int64_t note_start(const std::string& directory, std::int64_t step, bool is_first) {
  const RequeueCount before = read_requeue_count(directory);
  const std::int64_t count = is_first || before.step != step ? 1 : before.count + 1;
  const std::string text = "step " + std::to_string(step) + "\ncount " + std::to_string(count) + "\n";
  make_folders(directory);
  replace_file(directory, kStarts, text);
  return count;
}

}  // namespace lockstep::checkpoints
