// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/process.hpp>

#include <fstream>
#include <string>

namespace lockstep {

double peak_memory_mb() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != "VmHWM:") continue;
    double kilobytes = 0;
    status >> kilobytes;
    return kilobytes / 1024;
  }
  return 0;
}

}  // namespace lockstep
