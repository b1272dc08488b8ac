// SPDX-License-Identifier: BSD-3-Clause
#include "core/system/process.hpp"

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <unistd.h>

namespace lockstep {

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0' ? name.data() : "unknown";
}

void guard_standard_streams() noexcept {
  std::signal(SIGPIPE, SIG_IGN);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) >= 0 || errno != EBADF) continue;
    // open() returns the lowest free number, which is this one.
    static_cast<void>(::open("/dev/null", stream == STDERR_FILENO ? O_WRONLY : O_RDONLY));
  }
}

const std::string& version() {
  static const std::string text = LOCKSTEP_VERSION;
  return text;
}

}  // namespace lockstep
