// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/predict/part_files.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <system_error>
#include <unistd.h>

namespace lockstep::trainer {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kBufferBytes = 1 << 20;

std::string part_of(const std::string& path, int rank) { return fmt::format("{}.part-{:05}", path, rank); }

ConfigError write_error(const std::string& path, int reason) {
  return ConfigError(path + " cannot be written: " + std::strerror(reason));
}

/// @return  0, or the reason of the failure
int write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

/// Closes a file descriptor at the end of a scope.
struct OpenFile {
  explicit OpenFile(int opened) : file(opened) {}
  ~OpenFile() {
    if (file >= 0) ::close(file);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int file;
};

/// Appends a whole file to another one.
void append(const std::string& path, const std::string& part, std::int64_t size, int out) {
  const OpenFile in(::open(part.c_str(), O_RDONLY | O_CLOEXEC));
  std::string block(kBufferBytes, '\0');
  std::int64_t copied = 0;
  ssize_t got = in.file < 0 ? -1 : 1;
  while (got > 0) {
    got = ::read(in.file, block.data(), block.size());
    if (got < 0 && errno == EINTR) {
      got = 1;
      continue;
    }
    if (got <= 0) break;
    copied += got;
    const int reason = write_all(out, {block.data(), static_cast<std::size_t>(got)});
    if (reason != 0) throw write_error(path, reason);
  }
  if (got == 0 && copied == size) return;
  throw ConfigError(
      part +
      (got < 0 ? std::string(" cannot be read: ") + std::strerror(errno) : std::string(" is incomplete on rank 0")) +
      "; the folder of the output must be shared by all ranks");
}

}  // namespace

PartFile::PartFile(const std::string& path, int rank)
    : path_(path),
      part_(part_of(path, rank)),
      file_(::open(part_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (file_ < 0) throw write_error(path_, errno);
}

PartFile::~PartFile() {
  if (file_ >= 0) ::close(file_);
  ::unlink(part_.c_str());
}

void PartFile::write(std::string_view bytes) {
  buffer_ += bytes;
  size_ += static_cast<std::int64_t>(bytes.size());
  if (buffer_.size() >= kBufferBytes) flush();
}

void PartFile::flush() {
  const int reason = write_all(file_, buffer_);
  if (reason != 0) throw write_error(path_, reason);
  buffer_.clear();
}

std::int64_t PartFile::close() {
  flush();
  if (::close(std::exchange(file_, -1)) != 0) throw write_error(path_, errno);
  return size_;
}

void remove_parts(const std::string& path) {
  const fs::path whole(path);
  const std::string start = whole.filename().string() + ".part-";
  const fs::path folder = whole.has_parent_path() ? whole.parent_path() : fs::path(".");
  std::error_code unreadable;
  for (const auto& entry : fs::directory_iterator(folder, unreadable)) {
    const std::string name = entry.path().filename().string();
    const bool is_part = name.starts_with(start) && name.size() == start.size() + 5 &&
                         std::all_of(name.begin() + static_cast<std::ptrdiff_t>(start.size()), name.end(),
                                     [](char c) { return c >= '0' && c <= '9'; });
    if (is_part) fs::remove(entry.path(), unreadable);
  }
}

void join_parts(const std::string& path, const std::vector<std::int64_t>& sizes) {
  const OpenFile out(::open(part_of(path, 0).c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  if (out.file < 0) throw write_error(path, errno);
  for (std::size_t rank = 1; rank < sizes.size(); ++rank) {
    append(path, part_of(path, static_cast<int>(rank)), sizes[rank], out.file);
  }
  if (::fsync(out.file) != 0) throw write_error(path, errno);
}

void publish_parts(const std::string& path) {
  if (std::rename(part_of(path, 0).c_str(), path.c_str()) != 0) throw write_error(path, errno);
}

}  // namespace lockstep::trainer
