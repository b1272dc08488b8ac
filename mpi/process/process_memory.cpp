// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/process/process_memory.hpp"

#include <cstdlib>
#include <sys/uio.h>
#include <unistd.h>

#include "core/text/text_stream.hpp"
#include "mpi/process/launch.hpp"

namespace lockstep::mpi {

bool can_read_processes() {
  int from = 1;
  int copy = 0;
  iovec local{&copy, sizeof copy};
  iovec remote{&from, sizeof from};
  if (::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0) != static_cast<ssize_t>(sizeof from)) return false;
  int scope = 0;  // 2: administrators only, 3: nobody
  FileReader("/proc/sys/kernel/yama/ptrace_scope") >> scope;
  return scope < 2 || (scope == 2 && ::geteuid() == 0);
}

std::string process_memory_remark() {
  const char* const chosen = std::getenv(kCopyMechanism);
  if (can_read_processes() || (chosen != nullptr && std::string(chosen) != "none")) return "";
  return "the system denies process_vm_readv, so Open MPI copies messages twice, through shared memory; results are "
         "the same. To allow it, start the container with --cap-add=SYS_PTRACE, or set kernel.yama.ptrace_scope to 0 "
         "or "
         "1";
}

}  // namespace lockstep::mpi
