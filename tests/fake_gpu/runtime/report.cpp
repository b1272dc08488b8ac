// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/runtime/report.hpp"

#include <cstdio>
#include <unistd.h>

#include "fake_gpu/runtime/settings.hpp"

namespace lockstep::fake_gpu {

void report(const std::string& sentence) { std::fprintf(stderr, "fake GPU: %s\n", sentence.c_str()); }

void end_process() {
  std::fflush(stdout);
  _exit(kRaceExit);
}

void end_process(const std::string& sentence) {
  report(sentence);
  end_process();
}

void trace(const std::string& line) {
  if (settings().is_traced) report(line);
}

}  // namespace lockstep::fake_gpu
