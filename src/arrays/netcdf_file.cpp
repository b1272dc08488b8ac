// SPDX-License-Identifier: BSD-3-Clause
#include "arrays/netcdf_file.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace lockstep::arrays {

namespace {

ConfigError unwritable(const std::string& path, int reason) {
  return ConfigError(path + " cannot be written: " + std::strerror(reason));
}

}  // namespace

NewNetcdfFile::NewNetcdfFile(const NetcdfContents& contents, Destination destination)
    : destination_(std::move(destination)), layout_(contents) {
  constexpr mode_t kMode = 0666;
  const int flags = O_WRONLY | O_CLOEXEC | (destination_.is_owner ? O_CREAT | O_EXCL : 0);
  file_ = ::open(destination_.path.c_str(), flags, kMode);
  const int reason = errno;
  is_created_ = destination_.is_owner && file_ >= 0;
  if (!destination_.is_owner) {
    struct stat found {};
    const bool is_same =
        file_ >= 0 && ::fstat(file_, &found) == 0 && static_cast<std::uint64_t>(found.st_size) == layout_.size();
    if (is_same) return;
    if (file_ >= 0) ::close(std::exchange(file_, -1));
    throw ConfigError(destination_.path +
                      " cannot be opened on this rank; the folder of the output must be shared by all ranks");
  }
  if (file_ < 0) throw unwritable(destination_.final_path, reason);
  int failure = 0;
  if (::ftruncate(file_, static_cast<off_t>(layout_.size())) != 0) failure = errno;
  // Some file systems cannot allocate in advance. They report a full disk later.
  if (failure == 0 && ::fallocate(file_, 0, 0, static_cast<off_t>(layout_.size())) != 0 &&
      (errno == ENOSPC || errno == EFBIG || errno == EDQUOT)) {
    failure = errno;
  }
  if (failure == 0) return;
  ::close(std::exchange(file_, -1));
  ::unlink(destination_.path.c_str());
  throw unwritable(destination_.final_path, failure);
}

NewNetcdfFile::~NewNetcdfFile() {
  if (file_ >= 0) ::close(file_);
  if (is_created_) ::unlink(destination_.path.c_str());
}

void NewNetcdfFile::write(const NetcdfVariable& variable, std::int64_t first, std::span<const std::byte> elements) {
  write_bytes(layout_.offset_of(variable.name) + static_cast<std::uint64_t>(first) * variable.type.bytes, elements);
}

void NewNetcdfFile::write_bytes(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(file_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw unwritable(destination_.final_path, written < 0 ? errno : ENOSPC);
    offset += static_cast<std::uint64_t>(written);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void NewNetcdfFile::close() {
  const bool is_durable = ::fsync(file_) == 0;
  const int reason = errno;
  const bool is_closed = ::close(std::exchange(file_, -1)) == 0;
  if (!is_durable || !is_closed) throw unwritable(destination_.final_path, is_durable ? errno : reason);
}

void NewNetcdfFile::finish() {
  layout_.for_each_piece(
      [this](std::uint64_t offset, std::span<const std::byte> bytes) { write_bytes(offset, bytes); });
  close();
}

void NewNetcdfFile::publish() {
  if (std::rename(destination_.path.c_str(), destination_.final_path.c_str()) != 0) {
    throw unwritable(destination_.final_path, errno);
  }
  is_created_ = false;
}

}  // namespace lockstep::arrays
