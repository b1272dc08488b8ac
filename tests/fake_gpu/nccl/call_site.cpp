// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/nccl/call_site.hpp"

#include <execinfo.h>

namespace lockstep::fake_gpu::nccl {

CallSite CallSite::here() {
  CallSite site;
  site.count_ = backtrace(site.frames_.data(), kMaxFrames);
  return site;
}

void CallSite::print(int descriptor) const { backtrace_symbols_fd(frames_.data(), count_, descriptor); }

}  // namespace lockstep::fake_gpu::nccl
