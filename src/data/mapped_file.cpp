// SPDX-License-Identifier: BSD-3-Clause
#include "data/mapped_file.hpp"

#include <lockstep/core/error.hpp>

#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace lockstep::data {

namespace {

[[noreturn]] void fail(const std::string& path, const std::string& action) {
  throw DataError(path, "cannot be " + action + " (" + std::generic_category().message(errno) + "); check data.path");
}

class Descriptor {
 public:
  explicit Descriptor(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ < 0) fail(path, "opened");
  }
  ~Descriptor() { ::close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const noexcept { return fd_; }

 private:
  int fd_;
};

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const Descriptor file(path);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail(path, "examined");
  if (!S_ISREG(status.st_mode)) throw DataError(path, "is not a file; check data.path");
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return;  // nothing can be mapped, and nothing needs to be
  void* start = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (start == MAP_FAILED) fail(path, "mapped");
  bytes_ = {static_cast<const std::uint8_t*>(start), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::uint8_t*>(bytes_.data()), bytes_.size());
}

}  // namespace lockstep::data
