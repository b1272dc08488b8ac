// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>

namespace lockstep {

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
