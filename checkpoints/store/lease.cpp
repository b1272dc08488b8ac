// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/store/lease.hpp"

#include <lockstep/core/error.hpp>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <sys/stat.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

#include "checkpoints/store/disk.hpp"
#include "checkpoints/store/stale_files.hpp"

namespace lockstep::checkpoints {

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kRenewEvery{30};
constexpr std::chrono::milliseconds kLookEvery{50};
constexpr std::chrono::minutes kDeadAfter{10};
constexpr std::size_t kMaxFields = 16;
constexpr const char* kLease = "LEASE";

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

struct Holder {
  std::string host;
  std::string process;
  std::string job;  // of slurm; may be empty

  std::string text() const {
    return "host " + host + "\nprocess " + process + "\n" + (job.empty() ? "" : "job " + job + "\n");
  }
  std::string describe() const {
    return "process " + process + " on " + host + (job.empty() ? "" : " (Slurm job " + job + ")");
  }
};

Holder myself() { return {host_name(), std::to_string(::getpid()), environment("SLURM_JOB_ID")}; }

/// What a lease says; nothing in it is believed beyond these words.
Holder read_holder(const std::string& path) {
  std::ifstream file(path);
  std::map<std::string, std::string> fields;
  std::string key;
  std::string value;
  while (fields.size() < kMaxFields && file >> key >> value) fields[key] = value.substr(0, 256);
  return {fields["host"], fields["process"], fields["job"]};
}

bool is_alive(const Holder& holder, const std::string& path) {
  const Holder me = myself();
  if (!holder.job.empty() && holder.job == me.job) return false;  // requeued: an earlier start of this very job
  if (holder.host == me.host) {
    const long process = std::strtol(holder.process.c_str(), nullptr, 10);
    if (process <= 0 || process == ::getpid()) return false;
    return is_running(static_cast<pid_t>(process));
  }
  std::error_code error;
  const auto renewed = fs::last_write_time(path, error);
  return !error && fs::file_time_type::clock::now() - renewed < kDeadAfter;
}

std::string age_of(const std::string& path) {
  std::error_code error;
  const auto renewed = fs::last_write_time(path, error);
  if (error) return "?";
  const auto age = fs::file_time_type::clock::now() - renewed;
  return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(age).count());
}

/// The file gets its name once it is whole: a run that is killed meanwhile leaves no lease without a holder.
void write_holder(const std::string& directory) {
  const std::string temporary = directory + "/" + temporary_name(kLease);
  const std::string path = directory + "/" + kLease;
  const std::string text = myself().text();
  if (exists(temporary)) remove_tree(temporary);
  NewFile file(temporary);
  file.write(0, std::as_bytes(std::span(text)));
  file.close();
  if (::link(temporary.c_str(), path.c_str()) == 0) {
    ::unlink(temporary.c_str());
    return;
  }
  if (errno == EEXIST) {
    ::unlink(temporary.c_str());
    throw CheckpointError(path,
                          "another run has just started to write checkpoints to this folder; choose another --run.dir");
  }
  move(temporary, path);  // on a file system without hard links
}

}  // namespace

Lease::Lease(const std::string& directory, std::chrono::seconds patience)
    : path_(directory + "/" + kLease), renewed_at_(std::chrono::steady_clock::now()) {
  make_folders(directory);
  if (exists(path_)) {
    const Holder holder = read_holder(path_);
    const auto deadline = renewed_at_ + patience;
    while (holder.host == host_name() && is_alive(holder, path_) && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(kLookEvery);
    }
    if (is_alive(holder, path_)) {
      const std::string path = std::exchange(path_, "");
      throw CheckpointError(path, "another run writes checkpoints to this folder: " + holder.describe() +
                                      ", last active " + age_of(path) + " s ago; stop it, or choose another --run.dir");
    }
    taken_from_ = holder.describe();
    if (exists(path_)) remove_tree(path_);
  }
  write_holder(directory);
}

Lease::~Lease() {
  if (!path_.empty() && read_holder(path_).text() == myself().text()) ::unlink(path_.c_str());
}

void Lease::renew() noexcept {
  const auto now = std::chrono::steady_clock::now();
  if (now - renewed_at_ < kRenewEvery) return;
  renewed_at_ = now;
  ::utimensat(AT_FDCWD, path_.c_str(), nullptr, 0);
}

}  // namespace lockstep::checkpoints
