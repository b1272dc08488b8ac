// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <utility>
#include <vector>

/// Files and folders, with every result checked. A failure is a CheckpointError with path, call and the system's words.
namespace lockstep::checkpoints {

/// @param detail  more about the call, such as " at byte 4096"
[[noreturn]] void throw_errno(const std::string& path, const char* call, const std::string& detail = "");

/// A new file being written. It closes itself, but only close() notices an error.
class NewFile {
 public:
  /// @throws CheckpointError  also when there is something of that name
  explicit NewFile(std::string path);
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile();

  /// Takes the space now, so that a full disk is noticed before anything is written; some file systems cannot.
  void reserve(std::uint64_t bytes);
  /// The disk begins to write large pieces at once.
  void write(std::uint64_t offset, std::span<const std::byte> bytes);
  /// After a failure the file must be given up: a second fsync may succeed although data was lost.
  void sync();
  void close();

 private:
  std::string path_;
  int file_ = -1;
};

/// A regular file being read, directly or by symbolic links that lead to it.
class ExistingFile {
 public:
  explicit ExistingFile(std::string path);
  ExistingFile(const ExistingFile&) = delete;
  ExistingFile& operator=(const ExistingFile&) = delete;
  ~ExistingFile();

  std::uint64_t size() const noexcept { return size_; }
  int descriptor() const noexcept { return file_; }
  /// @throws CheckpointError  also when the file ends before that
  void read(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  std::string path_;
  int file_ = -1;
  std::uint64_t size_ = 0;
};

/// Makes the names in a folder durable.
void sync_folder(const std::string& path);
/// Makes a folder and those above it, and their names durable.
void make_folders(const std::string& path);
void make_folder(const std::string& path);
/// Never replaces a file by a folder or a folder that is not empty: rename(2) refuses.
void move(const std::string& from, const std::string& target);
/// Writes a new file and makes its bytes durable.
void write_file(const std::string& path, std::string_view text);
/// Writes a short file that is there whole or not at all, and durable; one of that name is replaced.
void replace_file(const std::string& folder, const std::string& name, std::string_view text);
void remove_tree(const std::string& path);
bool exists(const std::string& path);

/// A new folder, which is removed at the end unless it has been renamed.
class StagedFolder {
 public:
  /// Replaces a folder of that name, which an earlier failure of this process could not remove.
  explicit StagedFolder(std::string path);
  StagedFolder(const StagedFolder&) = delete;
  StagedFolder& operator=(const StagedFolder&) = delete;
  ~StagedFolder();

  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

/// Bytes that this process has read from state files and written to them since its start. Thread-safe.
std::uint64_t bytes_read() noexcept;
std::uint64_t bytes_written() noexcept;

// --- names beginning with a dot that a writer leaves in a folder of checkpoints when it is killed ---

/// Whether a process of this host exists and has not ended. A zombie has ended: its exit code has not been read yet.
bool is_running(pid_t process);

/// Seconds since a file or folder was written; 0 if this is unknown.
double seconds_since_change(const std::string& path);

/// ".tmp-<name>.<process>.<host>": under construction by this process.
std::string temporary_name(const std::string& name);

/// Deletes a checkpoint: it is renamed to ".trash-..." first, so that nobody takes a half-deleted one for whole.
void discard(const std::string& directory, const std::string& name);

/// Everything in a folder, in no particular order; nothing when the folder is missing.
std::vector<std::string> names_in(const std::string& directory);

/// Deletes what retain() was kept from deleting, and temporaries whose process is gone (or, on another host, that are
/// older than a day).
void remove_stale_files(const std::string& directory);

/// The system calls that make a checkpoint durable, by pointer: a test puts its own in to record their order and to let
/// each fail in turn. A program leaves them alone.
struct Syscalls {
  int (*mkdir)(const char* path, mode_t mode);
  int (*open)(const char* path, int flags, mode_t mode);
  int (*fallocate)(int file, int mode, off_t offset, off_t length);
  ssize_t (*pwrite)(int file, const void* bytes, std::size_t count, off_t offset);
  int (*fsync)(int file);
  int (*close)(int file);
  int (*rename)(const char* from, const char* target);
};

Syscalls& syscalls();

}  // namespace lockstep::checkpoints
