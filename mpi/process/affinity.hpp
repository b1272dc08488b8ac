// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <string>
#include <vector>

namespace lockstep::mpi {

/// The affinity mask of this process, one bit per processor, lowest first.
std::string affinity_mask();

/// The processors that are in `mask` or in `other`.
std::string union_of(std::string mask, const std::string& other);

/// How many processors `mask` has, at least 1.
int count_cpus(const std::string& mask);

/// The numbers of processors, in increasing order.
using Cpus = std::vector<int>;

Cpus cpus_in(const std::string& mask);

/// A list as Linux prints it: "0-3,8" is 0, 1, 2, 3, 8.
/// @return  empty where the text is no such list
Cpus parse_cpu_list(const std::string& text);

/// The number of the core of each processor: that of the first processor of the core.
/// @param root  folder that contains sys, for tests
std::map<int, int> cores_of(const Cpus& cpus, const std::string& root = "/");

/// How many cores the processors belong to.
int count_cores(const Cpus& cpus, const std::map<int, int>& core_of);

/// Lets all threads of this process, and those that they start, run on these processors only.
/// @return  false = the system refuses it; some threads may be bound
bool bind_process(const Cpus& cpus);

}  // namespace lockstep::mpi
