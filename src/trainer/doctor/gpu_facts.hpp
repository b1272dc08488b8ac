// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "trainer/doctor/facts.hpp"

namespace lockstep::trainer {

/// The driver and the errors of the GPUs of this host, as nvidia-smi and the kernel log state them within a few
/// seconds; nothing if nvidia-smi is not installed. Starts processes. Not collective.
GpuFacts gpu_facts();

/// The facts in the answer of nvidia-smi to the query of gpu_facts.
GpuFacts gpu_facts_in(const std::string& answer);

/// A sentence about the XID errors in lines of the kernel log; "" = there are none. Those that a faulty program causes
/// do not count.
std::string xid_errors_in(const std::string& lines);

}  // namespace lockstep::trainer
