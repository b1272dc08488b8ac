// SPDX-License-Identifier: BSD-3-Clause
#include "data/source/mapped_file.hpp"

#include <lockstep/core/error.hpp>

#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace lockstep::data {

// Opening a pipe would wait for its writer without O_NONBLOCK.
MappedFile::MappedFile(const std::string& path, std::string key)
    : path_(path), key_(std::move(key)), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (fd_ < 0) fail("opened");
  try {
    map();
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

void MappedFile::fail(const std::string& action) const {
  throw DataError(path_, "cannot be " + action + " (" + std::generic_category().message(errno) + "); check " + key_);
}

void MappedFile::map() {
  struct stat status {};
  if (::fstat(fd_, &status) != 0) fail("examined");
  if (!S_ISREG(status.st_mode)) throw DataError(path_, "is not a file; check " + key_);
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return;  // nothing can be mapped, and nothing needs to be
  void* start = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd_, 0);
  if (start == MAP_FAILED) fail("mapped");
  bytes_ = {static_cast<const std::uint8_t*>(start), size};
  lost_ = std::make_unique<const LostPages>(std::as_bytes(bytes_));
}

MappedFile::~MappedFile() {
  lost_.reset();
  if (!bytes_.empty()) ::munmap(const_cast<std::uint8_t*>(bytes_.data()), bytes_.size());
  ::close(fd_);
}

void MappedFile::check(std::size_t begin, std::size_t end) const {
  if (begin == end) return;
  struct stat status {};
  if (::fstat(fd_, &status) != 0) fail("examined");
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size >= end && lost_->first() >= end) return;
  throw DataError(path_, "was changed while it was in use: it has " + std::to_string(size) + " bytes instead of " +
                             std::to_string(bytes_.size()) + "; restore the file and resume the run");
}

FileStamp MappedFile::stamp() const {
  struct stat status {};
  if (::fstat(fd_, &status) != 0) fail("examined");
  const auto ns = [](const timespec& time) { return std::int64_t{time.tv_sec} * 1000000000 + time.tv_nsec; };
  return {.size = static_cast<std::uint64_t>(status.st_size),
          .modified_ns = ns(status.st_mtim),
          .changed_ns = ns(status.st_ctim),
          .inode = status.st_ino};
}

}  // namespace lockstep::data
