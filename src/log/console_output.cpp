// SPDX-License-Identifier: BSD-3-Clause
#include "log/console_output.hpp"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

namespace lockstep::log {

namespace {

constexpr std::size_t kMaxWaiting = 1 << 16;
constexpr std::chrono::seconds kPatience{5};
constexpr std::chrono::milliseconds kHurriedPatience{100};  // an mpirun that ends leaves the ranks 1 s
constexpr int kPollMs = 10;
std::atomic<bool> is_hurried{false};

bool can_block(int stream) {
  struct stat facts {};
  return ::fstat(stream, &facts) == 0 && (S_ISFIFO(facts.st_mode) || ::isatty(stream) == 1);
}

}  // namespace

ConsoleOutput::ConsoleOutput(int stream) {
  if (!can_block(stream)) return;
  const std::string path = "/proc/self/fd/" + std::to_string(stream);
  file_ = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

ConsoleOutput::~ConsoleOutput() {
  if (file_ >= 0) ::close(file_);
}

void ConsoleOutput::hurry() noexcept { is_hurried = true; }

void ConsoleOutput::write(std::string_view line) {
  const bool has_kept_up = waiting_.empty();
  if (is_lost_ || waiting_.size() + line.size() > kMaxWaiting) return write_waiting(false);
  waiting_ += line;
  write_waiting(has_kept_up);
}

void ConsoleOutput::flush() { write_waiting(false); }

void ConsoleOutput::write_waiting(bool is_patient) {
  const auto start = std::chrono::steady_clock::now();
  while (!waiting_.empty()) {
    const ssize_t written = ::write(file_, waiting_.data(), waiting_.size());
    if (written >= 0) {
      waiting_.erase(0, static_cast<std::size_t>(written));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) {
      is_lost_ = true;
      return waiting_.clear();
    }
    const auto waited = std::chrono::steady_clock::now() - start;
    if (!is_patient || waited > kPatience || (is_hurried && waited > kHurriedPatience)) return;
    pollfd ready{.fd = file_, .events = POLLOUT, .revents = 0};
    ::poll(&ready, 1, kPollMs);
  }
}

}  // namespace lockstep::log
