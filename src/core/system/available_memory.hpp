// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

/// The memory in bytes that the processes of this host, or of this container or batch job, can still use: the least of
/// MemAvailable in /proc/meminfo and of what the control groups of this process (versions 1 and 2) leave. Cached files
/// count as available, because the kernel gives them up.
/// @param root  folder that contains proc and sys, for tests
/// @return      none = the system does not say
std::optional<std::int64_t> available_memory(const std::string& root = "/");

}  // namespace lockstep
