// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace lockstep::mpi {

/// The affinity mask of this process, one bit per processor, lowest first.
std::string affinity_mask();

/// The processors that are in `mask` or in `other`.
std::string union_of(std::string mask, const std::string& other);

/// How many processors `mask` has, at least 1.
int count_cpus(const std::string& mask);

}  // namespace lockstep::mpi
