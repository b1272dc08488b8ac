// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <nccl.h>

#include <exception>
#include <stdexcept>
#include <string>

#include "fake_gpu/nccl/call_site.hpp"

namespace lockstep::fake_gpu::nccl {

/// A call that fails with a code of NCCL's; the sentence is what ncclGetLastError returns.
class Refusal : public std::runtime_error {
 public:
  Refusal(ncclResult_t code, const std::string& sentence) : std::runtime_error(sentence), code_(code) {}
  ncclResult_t code() const noexcept { return code_; }

 private:
  ncclResult_t code_;
};

/// @throws Refusal  the call failed; it is no longer the last error of CUDA
void check(cudaError_t code, const char* call);

void set_last_error(const std::string& sentence);
/// Stays valid until the next call in this thread.
const char* last_error();

/// Ends the process, because a rule is broken that real libraries do not report: they would hang or mix up values.
[[noreturn]] void break_rule(const std::string& sentence, const CallSite& site);

/// Runs `function` and turns a Refusal into its code.
template <class Function>
ncclResult_t guarded(Function function) noexcept {
  try {
    return function();
  } catch (const Refusal& refusal) {
    set_last_error(refusal.what());
    return refusal.code();
  } catch (const std::exception& error) {
    set_last_error(error.what());
    return ncclSystemError;
  }
}

}  // namespace lockstep::fake_gpu::nccl
