// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace lockstep {

/// Most memory that this process has held so far (VmHWM), in MB of 2^20 bytes; 0 if unknown.
double peak_memory_mb();

/// The current memory of the process (VmRSS), likewise.
double resident_memory_mb();

/// The name of this host; "unknown" if the system does not give it.
std::string host_name();

}  // namespace lockstep
