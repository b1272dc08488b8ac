// SPDX-License-Identifier: BSD-3-Clause
// Functions that LibTorch imports and Lockstep does not use.
#include <string>

#include "fake_gpu/nccl/errors.hpp"

namespace {

ncclResult_t refuse(const char* name) {
  lockstep::fake_gpu::nccl::set_last_error(std::string(name) + " is not part of the fake NCCL.");
  return ncclInvalidUsage;
}

}  // namespace

#define LOCKSTEP_UNSUPPORTED(name) \
  extern "C" [[gnu::visibility("default")]] ncclResult_t name() { return refuse(#name); }

LOCKSTEP_UNSUPPORTED(ncclAlltoAll)
LOCKSTEP_UNSUPPORTED(ncclBcast)
LOCKSTEP_UNSUPPORTED(ncclCommInitAll)
LOCKSTEP_UNSUPPORTED(ncclCommInitRankScalable)
LOCKSTEP_UNSUPPORTED(ncclCommShrink)
LOCKSTEP_UNSUPPORTED(ncclCommWindowDeregister)
LOCKSTEP_UNSUPPORTED(ncclCommWindowRegister)
LOCKSTEP_UNSUPPORTED(ncclDevCommCreate)
LOCKSTEP_UNSUPPORTED(ncclDevCommDestroy)
LOCKSTEP_UNSUPPORTED(ncclGroupSimulateEnd)
LOCKSTEP_UNSUPPORTED(ncclRecv)
LOCKSTEP_UNSUPPORTED(ncclRedOpCreatePreMulSum)
LOCKSTEP_UNSUPPORTED(ncclRedOpDestroy)
LOCKSTEP_UNSUPPORTED(ncclSend)
