// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace lockstep::mpi {

/// Whether this process may read the memory of the other ranks of its host with process_vm_readv. Containers and
/// Yama (ptrace_scope 2 and 3) deny it; Open MPI then reports each message that it could not copy.
bool can_read_processes();

/// The warning for a job that cannot; empty otherwise, and where the user has chosen a mechanism.
std::string process_memory_remark();

}  // namespace lockstep::mpi
