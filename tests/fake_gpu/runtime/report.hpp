// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace lockstep::fake_gpu {

/// Prints a sentence to stderr.
void report(const std::string& sentence);

/// Ends the process without its exit handlers, because a rule is broken that a real GPU does not report.
[[noreturn]] void end_process();
[[noreturn]] void end_process(const std::string& sentence);

/// Prints a line if FAKE_GPU_TRACE is set.
void trace(const std::string& line);

}  // namespace lockstep::fake_gpu
