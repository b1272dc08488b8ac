// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/record_function.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>

#include "fake_gpu/kernels/facts.hpp"

namespace lockstep::fake_gpu {

/// Work on tensors of the CPU that autograd, autocast and profilers do not see, whatever this thread is about.
struct CpuScope {
  c10::InferenceMode is_off{false};
  at::AutoDispatchBelowADInplaceOrView below_autograd = {};
  c10::impl::ExcludeDispatchKeyGuard below_autocast{c10::autocast_dispatch_keyset};
  at::DisableRecordFunctionGuard is_unseen = {};
};

/// Runs an operator on tensors of the CPU.
/// @param stack      the arguments, and afterwards the results
/// @param generator  for an operator with random numbers
void compute(const Facts& facts, Stack& stack, const std::optional<at::Generator>& generator);

}  // namespace lockstep::fake_gpu
