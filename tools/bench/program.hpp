// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "core/system/memory.hpp"

namespace lockstep::bench {

/// The body of `main` of a benchmark: the exit code is 1 after an exception, whose text is printed.
inline int run_program(const char* name, int argc, char** argv, void (*run)(const std::vector<std::string>&)) {
  keep_freed_memory();  // trainer::run does the same
  try {
    run({argv + 1, argv + argc});
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
    return 1;
  }
}

}  // namespace lockstep::bench
