// SPDX-License-Identifier: BSD-3-Clause
#include "core/system/process.hpp"

#include <array>
#include <string>
#include <unistd.h>

#include "core/text/text_stream.hpp"

namespace lockstep {

namespace {

/// An entry of the process's status, which is in kB there.
double status_mb(const std::string& entry) {
  FileReader status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != entry) continue;
    double kilobytes = 0;
    status >> kilobytes;
    return kilobytes / 1024;
  }
  return 0;
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0' ? name.data() : "unknown";
}

double peak_memory_mb() { return status_mb("VmHWM:"); }

double resident_memory_mb() { return status_mb("VmRSS:"); }

}  // namespace lockstep
