// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sys/statvfs.h>
#include <system_error>
#include <unistd.h>

#include "checkpoints/disk/disk.hpp"
#include "checkpoints/store/checkpoint_index.hpp"
#include "checkpoints/store/lease.hpp"
#include "checkpoints/store/retention.hpp"
#include "checkpoints/store/store.hpp"
#include "ckpt/reading/commands.hpp"
#include "ckpt/reading/locate.hpp"
#include "ckpt/reading/text.hpp"

namespace lockstep::ckpt {

namespace fs = std::filesystem;

namespace {

/// A diagnosis: facts, and problems with their remedy.
class Diagnosis {
 public:
  void fact(const std::string& words) { add("ok", words); }
  void problem(const std::string& words) { add("problem", words); }

  OrderedJson document() const { return {{"findings", rows_}}; }
  std::string text() const {
    TextTable table({Align::left, Align::left});
    for (const OrderedJson& row : rows_)
      table.add({row.at("kind").get<std::string>(), row.at("message").get<std::string>()});
    return table.text();
  }

 private:
  void add(const char* kind, const std::string& words) { rows_.push_back({{"kind", kind}, {"message", words}}); }
  OrderedJson rows_ = OrderedJson::array();
};

constexpr double kClockStep = 2;  // smallest difference that is reported as one of clocks

std::string duration_text(double seconds) {
  if (seconds < 120) return fmt::format("{:.0f} s", seconds);
  if (seconds < 7200) return fmt::format("{:.0f} min", seconds / 60);
  if (seconds < 172800) return fmt::format("{:.0f} h", seconds / 3600);
  return fmt::format("{:.0f} days", seconds / 86400);
}

/// The time of a change, such as "5 s ago".
std::string moment_text(const std::string& path) {
  const double age = checkpoints::seconds_since_change(path);
  if (age < -kClockStep) return duration_text(-age) + " in the future: the clocks of two hosts differ";
  return duration_text(std::max(age, 0.0)) + " ago";
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line.substr(0, 200);
}

/// @return whether every checkpoint's envelope is readable
bool look_at_checkpoints(const std::string& directory, const std::vector<Saved>& all, Diagnosis& diagnosis) {
  bool is_whole = true;
  for (const auto& verdict : checkpoints::plan_retention(directory, {})) {
    if (verdict.is_finished) continue;
    diagnosis.problem(std::filesystem::path(verdict.path).filename().string() +
                      " is incomplete or unreadable; `ckpt verify` prints the reason");
    is_whole = false;
  }
  if (all.empty()) {
    diagnosis.problem("there is no checkpoint");
  } else if (is_whole) {
    diagnosis.fact(fmt::format("{} checkpoints, {} to {}; `ckpt verify --all` checks every byte", all.size(),
                               all.front().name, all.back().name));
  }
  return is_whole;
}

void look_at_stale_files(const std::string& directory, Diagnosis& diagnosis) {
  static constexpr std::pair<const char*, const char*> kKinds[] = {
      {".tmp-", "incomplete; the next training run removes it when its writer has ended"},
      {".trash-", "partly deleted; a training run, or prune --yes, completes the deletion"},
      {".bad-", "was renamed because it was unreadable; delete it yourself"},
      {".old-", "was renamed when a run resumed from an earlier step; delete it yourself"},
  };
  std::vector<std::string> names = names_in(directory);
  std::ranges::sort(names);
  for (const std::string& name : names) {
    for (const auto& [prefix, what] : kKinds) {
      if (!name.starts_with(prefix)) continue;
      diagnosis.problem(fmt::format("{} {} ({})", escaped(name), what, moment_text(directory + "/" + name)));
    }
  }
}

void look_at_pointer(const std::string& directory, const std::vector<Saved>& all, Diagnosis& diagnosis) {
  const std::string newest = all.empty() ? "" : all.back().name;
  if (!fs::exists(directory + "/LATEST")) {
    if (!all.empty()) diagnosis.problem("LATEST is missing; programs do not need it");
    return;
  }
  const std::string line = first_line(directory + "/LATEST");
  if (line == newest) return diagnosis.fact("LATEST states the newest checkpoint");
  diagnosis.problem(fmt::format("LATEST states {}, but the newest checkpoint is {}; programs ignore it",
                                line.empty() ? "nothing" : "'" + escaped(line) + "'",
                                newest.empty() ? "none" : newest));
}

void look_at_lease(const std::string& directory, Diagnosis& diagnosis) {
  const std::string lease = directory + "/LEASE";
  if (!fs::exists(lease)) return diagnosis.fact("no run holds the lease of the folder");
  const checkpoints::LeaseHolder holder = checkpoints::read_holder(lease);
  if (!holder.is_named()) return diagnosis.fact("the file LEASE names no run; the next run replaces it");
  const std::string words =
      fmt::format("the lease of {} was renewed {}", escaped(holder.describe()), moment_text(lease));
  checkpoints::seconds_since_change(lease) < -kClockStep ? diagnosis.problem(words) : diagnosis.fact(words);
}

void look_at_permissions(const std::string& directory, Diagnosis& diagnosis) {
  std::error_code error;
  const auto mode = fs::status(directory, error).permissions();
  if (::access(directory.c_str(), W_OK) != 0) diagnosis.problem("the folder cannot be written by this user");
  if ((mode & fs::perms::others_write) != fs::perms::none) {
    diagnosis.problem("all users can write to the folder; run chmod o-w");
  }
}

void look_at_disk(const std::string& directory, const std::vector<Saved>& all, Diagnosis& diagnosis) {
  struct statvfs disk {};
  if (::statvfs(directory.c_str(), &disk) != 0)
    return diagnosis.problem("the free space of the file system is unknown");
  const std::uint64_t free = static_cast<std::uint64_t>(disk.f_bavail) * disk.f_frsize;
  const std::uint64_t size = all.empty() ? 0 : bytes_of(all.back().path);
  if (size == 0) return diagnosis.fact(human_bytes(free) + " free");
  const std::uint64_t room = free / size;
  std::string words =
      fmt::format("{} free: room for {} more checkpoints of {}", human_bytes(free), room, human_bytes(size));
  if (all.size() > 1) {
    const double every =
        (checkpoints::seconds_since_change(all.front().path) - checkpoints::seconds_since_change(all.back().path)) /
        static_cast<double>(all.size() - 1);
    if (every > 0) {
      words += fmt::format("; with one every {} and no deletion, it is full in {}", duration_text(every),
                           duration_text(every * static_cast<double>(room)));
    }
  }
  room < 2 ? diagnosis.problem(words) : diagnosis.fact(words);
}

std::string run_of(const std::string& checkpoint) {
  try {
    const checkpoints::Archive groups = checkpoints::read_groups(checkpoint);
    return groups.has_attribute("/", "run_id") ? groups.text("/", "run_id") : "";
  } catch (const CheckpointError&) {
    return "";  // said already
  }
}

/// @return whether all checkpoints are of one run, as far as known
bool look_at_runs(const std::vector<Saved>& all, Diagnosis& diagnosis) {
  const Saved* first = nullptr;
  std::string run;
  for (const Saved& saved : all) {
    const std::string other = run_of(saved.path);
    if (other.empty() || other == run) continue;
    if (first != nullptr) {
      diagnosis.problem(
          fmt::format("{} belongs to run {}, but {} to run {}: move one to another folder, or resume with "
                      "resume.fork=true, which renames the others",
                      first->name, escaped(run), saved.name, escaped(other)));
      return false;
    }
    first = &saved;
    run = other;
  }
  if (first != nullptr) diagnosis.fact("all belong to run " + escaped(run));
  return true;
}

void look_at_clock(const std::vector<Saved>& all, Diagnosis& diagnosis) {
  for (const Saved& saved : all) {
    if (checkpoints::seconds_since_change(saved.path) >= -kClockStep) continue;
    return diagnosis.problem(saved.name + " has a modification time in the future: the clocks of two hosts differ");
  }
}

/// One checkpoint by itself: its envelopes, index, name and numbers, but not every byte.
Exit look_at_one(const std::string& path, Diagnosis& diagnosis) {
  try {
    const checkpoints::CheckpointIndex index = checkpoints::read_checkpoint_index(path);
    diagnosis.fact(fmt::format("step {}, {} arrays, {}, written by {}; `ckpt verify` checks every byte", index.step,
                               index.arrays.size(), exact_bytes(index.file_bytes), escaped(index.writer)));
    const std::string nonfinite = checkpoints::nonfinite_in(path, "/model/params");
    nonfinite.empty() ? diagnosis.fact("all parameters are finite") : diagnosis.problem(escaped(nonfinite));
    const std::string run = run_of(path);
    if (!run.empty()) diagnosis.fact("of run " + escaped(run));
    return Exit::ok;
  } catch (const CheckpointError& error) {
    diagnosis.problem(escaped(error.what()));
    return exit_code_of(error);
  }
}

Exit look_at_folder(const std::string& directory, Diagnosis& diagnosis) {
  const std::vector<Saved> all = saved_in(directory);
  const bool is_whole = look_at_checkpoints(directory, all, diagnosis);
  const bool is_one_run = look_at_runs(all, diagnosis);
  look_at_stale_files(directory, diagnosis);
  look_at_pointer(directory, all, diagnosis);
  look_at_lease(directory, diagnosis);
  look_at_permissions(directory, diagnosis);
  look_at_clock(all, diagnosis);
  look_at_disk(directory, all, diagnosis);
  if (!is_whole) return Exit::corrupt;
  return is_one_run ? Exit::ok : Exit::policy;
}

}  // namespace

Exit doctor(const Request& request) {
  const std::string one = one_checkpoint(request.paths[0]);
  const std::string place = one.empty() ? checkpoint_folder(request.paths[0]) : one;
  Diagnosis diagnosis;
  const Exit code = one.empty() ? look_at_folder(place, diagnosis) : look_at_one(place, diagnosis);
  OrderedJson root = diagnosis.document();
  root[one.empty() ? "directory" : "file"] = escaped(place);
  request.wants_json() ? print(root) : print(diagnosis.text());
  return code;
}

}  // namespace lockstep::ckpt
