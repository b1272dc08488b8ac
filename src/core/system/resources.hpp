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

/// The smallest memory limit of the control groups of this process and of those that contain them, in bytes.
/// @param root  folder that contains proc and sys, for tests
/// @return      none = no limit
std::optional<std::int64_t> memory_limit(const std::string& root = "/");

/// Most memory that this process has held so far (VmHWM), in MB of 2^20 bytes; 0 if unknown.
double peak_memory_mb();

/// The current memory of the process (VmRSS), likewise.
double resident_memory_mb();

/// Processor time that a control group allows.
struct CpuQuota {
  double processors = 0;
  std::string group;  ///< identity of the group that limits: processes with an equal one share the quota
};

/// The smallest quota of the control groups of this process and of those that contain them, versions 1 and 2.
/// @param root  folder that contains proc and sys, for tests
/// @return      none = no limit
std::optional<CpuQuota> cpu_quota(const std::string& root = "/");

/// Number of threads that can run at the same time: the smaller of the affinity mask and of the quota, rounded down; at
/// least 1.
int usable_processors();

}  // namespace lockstep
