// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/store/lease.hpp"

#include <lockstep/core/error.hpp>

#include <cerrno>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoints/disk/disk.hpp"
#include "checkpoints/disk/stale_files.hpp"
#include "checkpoints/store/lease_holder.hpp"

namespace lockstep::checkpoints {

namespace {

constexpr std::chrono::milliseconds kLookEvery{50};
constexpr const char* kLease = "LEASE";

/// Keeps other processes of this host from taking a lease in the same folder. Between hosts, take_away() decides.
class FolderLock {
 public:
  explicit FolderLock(const std::string& directory) : file_(::open(directory.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (file_ >= 0) ::flock(file_, LOCK_EX);  // some file systems cannot
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock() {
    if (file_ >= 0) ::close(file_);
  }

 private:
  int file_;
};

std::string new_file(const std::string& directory, const char* name, const std::string& text) {
  std::string path = directory + "/" + temporary_name(name);
  if (exists(path)) remove_tree(path);
  NewFile file(path);
  file.write(0, std::as_bytes(std::span(text)));
  file.close();
  return path;
}

[[noreturn]] void throw_just_started(const std::string& path) {
  throw CheckpointError(path, "another run has just started to write to this folder; choose another --run.dir");
}

/// The file gets its name once it is whole: a run that is killed meanwhile leaves no lease without a holder.
void write_holder(const std::string& directory, const std::string& text) {
  const std::string temporary = new_file(directory, kLease, text);
  const std::string path = directory + "/" + kLease;
  if (::link(temporary.c_str(), path.c_str()) == 0) {
    ::unlink(temporary.c_str());
    return;
  }
  if (errno == EEXIST) {
    ::unlink(temporary.c_str());
    throw_just_started(path);
  }
  move(temporary, path);  // the file system has no hard links
}

/// Removes the lease of a holder that has ended. A lease that another run has put there meanwhile is put back.
void take_away(const std::string& directory, const std::string& text) {
  const std::string path = directory + "/" + kLease;
  const std::string aside = directory + "/" + temporary_name("LEASE-before");
  if (exists(aside)) remove_tree(aside);
  if (::rename(path.c_str(), aside.c_str()) != 0) {
    if (errno == ENOENT) return;
    throw_errno(path, "rename");
  }
  const bool is_same = read_holder(aside).text() == text;
  if (!is_same) static_cast<void>(::link(aside.c_str(), path.c_str()));
  remove_tree(aside);
  if (!is_same) throw_just_started(path);
}

std::string age_text(std::chrono::seconds age) {
  if (age < std::chrono::seconds(0)) return std::to_string(-age.count()) + " s in the future";
  return std::to_string(age.count()) + " s ago";
}

}  // namespace

std::chrono::seconds age_by_file_system(const std::string& directory, const std::string& path) {
  const std::string probe = new_file(directory, "CLOCK", "now\n");
  struct stat now {};
  struct stat then {};
  const bool is_known = ::stat(probe.c_str(), &now) == 0 && ::stat(path.c_str(), &then) == 0;
  ::unlink(probe.c_str());
  return std::chrono::seconds(is_known ? now.st_mtim.tv_sec - then.st_mtim.tv_sec : 0);
}

Lease::Lease(const std::string& directory, std::chrono::seconds patience, std::chrono::milliseconds renew_every)
    : directory_(directory), path_(directory + "/" + kLease), mine_(this_holder().text()) {
  make_folders(directory);
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!try_to_take(std::chrono::steady_clock::now() < deadline)) std::this_thread::sleep_for(kLookEvery);
  renewer_ = std::jthread([this, renew_every](const std::stop_token& stop) { keep_renewing(stop, renew_every); });
}

/// @param can_wait  a holder on this host that has not ended is no error yet
/// @return          whether the lease was taken
bool Lease::try_to_take(bool can_wait) {
  const FolderLock lock(directory_);
  if (exists(path_)) {
    const LeaseHolder holder = read_holder(path_);
    const std::chrono::seconds age = age_by_file_system(directory_, path_);
    const LeaseVerdict verdict = judge(holder, age);
    if (!verdict.is_dead && verdict.is_local && can_wait) return false;
    if (!verdict.is_dead) {
      throw CheckpointError(path_, "another run writes checkpoints to this folder: " + holder.describe() +
                                       ", last active " + age_text(age) + "; " + verdict.remedy);
    }
    taken_from_ = holder.describe();
    take_away(directory_, holder.text());
  }
  write_holder(directory_, mine_);
  return true;
}

Lease::~Lease() {
  renewer_.request_stop();
  if (renewer_.joinable()) renewer_.join();
  try {
    if (exists(path_) && read_holder(path_).text() == mine_) ::unlink(path_.c_str());
  } catch (const std::exception&) {  // it stays, and names a process that has ended
  }
}

void Lease::keep_renewing(const std::stop_token& stop, std::chrono::milliseconds every) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    wake_.wait_for(lock, stop, every, [] { return false; });
    if (!stop.stop_requested()) renew();
  }
}

/// A lease that was deleted by hand is written again; a disk that cannot be read now is looked at again later.
void Lease::renew() noexcept {
  try {
    if (!exists(path_)) return write_holder(directory_, mine_);
    const LeaseHolder holder = read_holder(path_);
    is_lost_ = holder.is_named() && holder.text() != mine_;
    if (!is_lost_) ::utimensat(AT_FDCWD, path_.c_str(), nullptr, 0);
  } catch (const std::exception&) {
  }
}

void Lease::require() {
  if (!exists(path_)) return;
  const LeaseHolder holder = read_holder(path_);
  is_lost_ = holder.is_named() && holder.text() != mine_;
  if (!is_lost_) return;
  throw CheckpointError(path_, "another run has taken over this folder: " + holder.describe() +
                                   "; this run ends without another checkpoint");
}

}  // namespace lockstep::checkpoints
