// SPDX-License-Identifier: BSD-3-Clause
#include "data/stores/file_reader.hpp"

#include <lockstep/core/error.hpp>

#include <array>
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <sys/stat.h>
#include <system_error>
#include <thread>
#include <unistd.h>

namespace lockstep::data {

namespace {

constexpr std::array<int, 3> kPauses_ms = {100, 1000, 10000};

class OpenFile {
 public:
  explicit OpenFile(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~OpenFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int get() const noexcept { return fd_; }

 private:
  int fd_;
};

bool is_transient(int code) {
  return code == EIO || code == ESTALE || code == ETIMEDOUT || code == EAGAIN || code == EINTR;
}

/// One attempt.
/// @return  0, or the error number of the system; then `action` states the failed action
int read_once(const std::string& path, std::int64_t max_bytes, std::vector<std::byte>& bytes, std::size_t& count,
              const char*& action) {
  action = "opened";
  const OpenFile file(path);
  if (file.get() < 0) return errno;
  action = "examined";
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return errno;
  if (!S_ISREG(status.st_mode)) throw DataError(path, "is not a regular file; replace it or exclude it");
  if (status.st_size > max_bytes) {
    throw DataError(path, "has " + std::to_string(status.st_size) + " bytes, more than data.max_image_bytes = " +
                              std::to_string(max_bytes) + "; exclude the file or raise the limit");
  }
  action = "read";
  const auto size = static_cast<std::size_t>(status.st_size);
  if (bytes.size() < size) bytes.resize(size);
  count = 0;
  while (count < size) {
    const ssize_t got = ::read(file.get(), bytes.data() + count, size - count);
    if (got < 0) return errno;
    if (got == 0) break;  // the file became shorter; its decoder reports what is missing
    count += static_cast<std::size_t>(got);
  }
  return 0;
}

}  // namespace

std::span<const std::byte> read_file(const std::string& path, std::int64_t max_bytes, std::vector<std::byte>& bytes) {
  for (std::size_t attempt = 0;; ++attempt) {
    std::size_t count = 0;
    const char* action = "";
    const int code = read_once(path, max_bytes, bytes, count, action);
    if (code == 0) return {bytes.data(), count};
    if (!is_transient(code) || attempt == kPauses_ms.size()) {
      throw DataError(path, std::string("cannot be ") + action + " (" + std::generic_category().message(code) +
                                "); restore the file or exclude it");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(kPauses_ms.at(attempt)));
  }
}

void read_file_ahead(const std::string& path) noexcept {
  const OpenFile file(path);
  if (file.get() >= 0) ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_WILLNEED);
}

}  // namespace lockstep::data
