// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/disk/disk.hpp"

#include <lockstep/core/error.hpp>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <signal.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <system_error>
#include <unistd.h>

#include "core/system/process.hpp"

namespace lockstep::checkpoints {

namespace fs = std::filesystem;

Syscalls& syscalls() {
  static Syscalls calls = {
      .mkdir = ::mkdir,
      .open = [](const char* path, int flags, mode_t mode) { return ::open(path, flags, mode); },
      .fallocate = ::fallocate,
      .pwrite = ::pwrite,
      .fsync = ::fsync,
      .close = ::close,
      .rename = ::rename,
  };
  return calls;
}

namespace {

/// The disk begins to write after each write of this size, not only at the end.
constexpr std::uint64_t kWriteBehindBytes = std::uint64_t{256} << 10;

/// `path`, or the nearest folder above it that is there.
std::string nearest_existing(std::string path) {
  while (!path.empty() && path != "/" && !exists(path)) path = fs::path(path).parent_path().string();
  return path.empty() ? "." : path;
}

std::string room_at(const std::string& path) {
  struct statvfs disk {};
  if (::statvfs(path.c_str(), &disk) != 0) return "";
  return std::to_string(static_cast<std::uint64_t>(disk.f_bavail) * disk.f_frsize) + " bytes and " +
         std::to_string(disk.f_favail) + " files are available there; ";
}

std::string owner_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return "";
  char mode[8];
  std::snprintf(mode, sizeof mode, "%04o", status.st_mode & 07777U);
  return "; " + path + " belongs to user " + std::to_string(status.st_uid) + " and has mode " + mode;
}

std::string mount_options_of(const std::string& path) {
  struct statvfs disk {};
  if (::statvfs(path.c_str(), &disk) != 0) return "";
  const std::pair<unsigned long, const char*> known[] = {
      {ST_RDONLY, "ro"}, {ST_NOSUID, "nosuid"}, {ST_NOEXEC, "noexec"}, {ST_SYNCHRONOUS, "sync"}};
  std::string options;
  for (const auto& [flag, name] : known) {
    if ((disk.f_flag & flag) != 0) options += (options.empty() ? "" : ",") + std::string(name);
  }
  return options.empty() ? "" : "; it is mounted " + options;
}

/// The help that a user needs to mend it.
std::string hint_for(int error, const std::string& path) {
  const std::string near = nearest_existing(path);
  switch (error) {
    case EFBIG:
      return " (the limit on file sizes: see `ulimit -f`)";
    case ENOSPC:
      return " (" + room_at(near) + "free some space, or lower ckpt.keep_last)";
    case EDQUOT:
      return " (the quota of user " + std::to_string(::geteuid()) + "; free some space, or lower ckpt.keep_last)";
    case EACCES:
    case EPERM:
      return " (this is user " + std::to_string(::geteuid()) + owner_of(near) + ")";
    case EROFS:
      return " (" + near + mount_options_of(near) + ")";
    default:
      return "";
  }
}

/// "a pipe", of what is no regular file.
const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return S_ISCHR(mode) || S_ISBLK(mode) ? "a device" : "something else";
}

/// "it is a symbolic link to 'x'"; "" for anything else.
std::string link_text_of(const std::string& path) {
  std::error_code error;
  const fs::path target = fs::read_symlink(path, error);
  return error ? "" : "it is a symbolic link to '" + target.string() + "'";
}

std::atomic<std::uint64_t> read_bytes = 0;
std::atomic<std::uint64_t> written_bytes = 0;

constexpr std::string_view kTemporary = ".tmp-";
constexpr std::string_view kTrash = ".trash-";
constexpr double kGivenUpAfter = 24 * 60 * 60;  // seconds

/// Whether `name`, ".tmp-<name>.<process>.<host>", names a process of this host that does not run.
bool is_of_dead_process(std::string_view name) {
  const std::size_t first_dot = name.find('.', kTemporary.size());
  const std::size_t second_dot = name.find('.', first_dot == std::string_view::npos ? first_dot : first_dot + 1);
  if (second_dot == std::string_view::npos || name.substr(second_dot + 1) != host_name()) return false;
  pid_t process = 0;
  const char* end = name.data() + second_dot;
  const auto parsed = std::from_chars(name.data() + first_dot + 1, end, process);
  if (parsed.ec != std::errc() || parsed.ptr != end || process <= 0) return false;
  return !is_running(process);
}

}  // namespace

std::uint64_t bytes_read() noexcept { return read_bytes; }
std::uint64_t bytes_written() noexcept { return written_bytes; }

void throw_errno(const std::string& path, const char* call, const std::string& detail) {
  const int error = errno;
  throw CheckpointError(path, std::string(call) + detail + " failed: " + std::strerror(error) + hint_for(error, path))
      .as(error == ENOENT ? CheckpointFault::missing : CheckpointFault::io);
}

NewFile::NewFile(std::string path) : path_(std::move(path)) {
  file_ = syscalls().open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0640);
  if (file_ < 0) throw_errno(path_, "open");
}

NewFile::~NewFile() {
  if (file_ >= 0) ::close(file_);
}

void NewFile::reserve(std::uint64_t bytes) {
  int result = -1;
  do {
    result = syscalls().fallocate(file_, 0, 0, static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result == 0 || errno == EOPNOTSUPP || errno == ENOSYS) return;
  throw_errno(path_, "fallocate", " of " + std::to_string(bytes) + " bytes");
}

void NewFile::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  const std::uint64_t begin = offset;
  while (!bytes.empty()) {
    const ssize_t written = syscalls().pwrite(file_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written == 0) errno = ENOSPC;  // no progress and no reason given: do not loop forever
    if (written <= 0) throw_errno(path_, "pwrite", " at byte " + std::to_string(offset));
    offset += static_cast<std::uint64_t>(written);
    written_bytes += static_cast<std::uint64_t>(written);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  if (offset - begin < kWriteBehindBytes) return;
  // The disk works while the caller prepares the next bytes. sync() reports errors.
  static_cast<void>(
      ::sync_file_range(file_, static_cast<off_t>(begin), static_cast<off_t>(offset - begin), SYNC_FILE_RANGE_WRITE));
}

void NewFile::sync() {
  if (syscalls().fsync(file_) != 0) throw_errno(path_, "fsync");
}

void NewFile::close() {
  if (syscalls().close(std::exchange(file_, -1)) != 0 && errno != EINTR) throw_errno(path_, "close");
}

ExistingFile::ExistingFile(std::string path) : path_(std::move(path)) {
  // O_NONBLOCK: a pipe must not make us wait for its writer.
  file_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  const int error = file_ < 0 ? errno : 0;
  const std::string link = link_text_of(path_);
  if (error == ELOOP || (error == ENOENT && !link.empty()))
    throw CheckpointError(path_, link + ", which leads to no file").as(CheckpointFault::missing);
  if (error == ENOENT) throw CheckpointError(path_, "the file or folder does not exist").as(CheckpointFault::missing);
  struct stat status {};
  const bool is_socket = error == ENXIO && ::stat(path_.c_str(), &status) == 0;
  errno = error;
  if (file_ < 0 && !is_socket) throw_errno(path_, "open");
  const bool is_regular = file_ >= 0 && ::fstat(file_, &status) == 0 && S_ISREG(status.st_mode);
  if (!is_regular && file_ >= 0) ::close(std::exchange(file_, -1));
  if (!is_regular) {
    throw CheckpointError(
        path_, (link.empty() ? "it is " : link + ", which is ") + kind_of(status.st_mode) + ", not a regular file")
        .as(CheckpointFault::refused);
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

ExistingFile::~ExistingFile() {
  if (file_ >= 0) ::close(file_);
}

void ExistingFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t got = ::pread(file_, out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_errno(path_, "pread", " at byte " + std::to_string(offset));
    if (got == 0)
      throw CheckpointError(path_, "it ended at byte " + std::to_string(offset) + " while it was being read");
    offset += static_cast<std::uint64_t>(got);
    read_bytes += static_cast<std::uint64_t>(got);
    out = out.subspan(static_cast<std::size_t>(got));
  }
}

void sync_folder(const std::string& path) {
  const int folder = syscalls().open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  if (folder < 0) throw_errno(path, "open");
  const int result = syscalls().fsync(folder);
  const int error = errno;
  ::close(folder);
  errno = error;
  if (result != 0) throw_errno(path, "fsync");
}

void make_folder(const std::string& path) {
  if (syscalls().mkdir(path.c_str(), 0750) != 0) throw_errno(path, "mkdir");
}

void make_folders(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) return;
  const std::string parent = fs::path(path).parent_path().string();
  if (!parent.empty() && parent != path) make_folders(parent);
  if (syscalls().mkdir(path.c_str(), 0777) != 0 && errno != EEXIST) throw_errno(path, "mkdir");
  if (::stat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) throw CheckpointError(path, "it is not a folder");
  sync_folder(parent.empty() ? "." : parent);
}

void move(const std::string& from, const std::string& target) {
  if (syscalls().rename(from.c_str(), target.c_str()) != 0) throw_errno(from, "rename", " to " + target);
}

void write_file(const std::string& path, std::string_view text) {
  NewFile file(path);
  file.write(0, std::as_bytes(std::span(text)));
  file.sync();
  file.close();
}

void replace_file(const std::string& folder, const std::string& name, std::string_view text) {
  const std::string temporary = folder + "/" + temporary_name(name);
  remove_tree(temporary);
  write_file(temporary, text);
  move(temporary, folder + "/" + name);
  sync_folder(folder);
}

void remove_tree(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);  // does not follow symbolic links
  if (error) throw CheckpointError(path, "cannot be removed: " + error.message());
}

bool exists(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0;
}

StagedFolder::StagedFolder(std::string path) : path_(std::move(path)) {
  if (exists(path_)) remove_tree(path_);
  make_folder(path_);
}

StagedFolder::~StagedFolder() {
  std::error_code ignored;  // readers pass over it, and retain() tries again
  fs::remove_all(path_, ignored);
}

bool is_running(pid_t process) {
  if (::kill(process, 0) != 0 && errno != EPERM) return false;
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  const std::string stat{std::istreambuf_iterator<char>(file), {}};
  const auto end_of_name = stat.rfind(") ");
  return end_of_name == std::string::npos || stat[end_of_name + 2] != 'Z';
}

double seconds_since_change(const std::string& path) {
  std::error_code error;
  const auto changed = fs::last_write_time(path, error);
  return error ? 0 : std::chrono::duration<double>(fs::file_time_type::clock::now() - changed).count();
}

std::string temporary_name(const std::string& name) {
  return std::string(kTemporary) + name + "." + std::to_string(::getpid()) + "." + host_name();
}

void discard(const std::string& directory, const std::string& name) {
  const std::string trash = directory + "/" + std::string(kTrash) + name;
  if (exists(trash)) remove_tree(trash);
  move(directory + "/" + name, trash);
  sync_folder(directory);
  remove_tree(trash);
}

void remove_stale_files(const std::string& directory) {
  for (const std::string& name : names_in(directory)) {
    const std::string path = directory + "/" + name;
    const bool is_dead =
        name.starts_with(kTemporary) && (is_of_dead_process(name) || seconds_since_change(path) > kGivenUpAfter);
    if (is_dead || name.starts_with(kTrash)) remove_tree(path);
  }
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw CheckpointError(directory, "cannot be listed: " + error.message()).as(CheckpointFault::io);
  }
  return names;
}

}  // namespace lockstep::checkpoints
