// SPDX-License-Identifier: BSD-3-Clause
#include "core/system/process.hpp"

#include <string>

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

double peak_memory_mb() { return status_mb("VmHWM:"); }

double resident_memory_mb() { return status_mb("VmRSS:"); }

}  // namespace lockstep
