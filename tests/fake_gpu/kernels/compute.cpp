// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/kernels/compute.hpp"

#include "fake_gpu/kernels/products.hpp"

namespace lockstep::fake_gpu {

namespace {

void call_kernel(const Facts& facts, Stack& stack) {
  if (facts.own_function != nullptr) {
    facts.own_function->callBoxed(facts.handle, c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  } else {
    facts.handle.callBoxed(stack);
  }
}

}  // namespace

void compute(const Facts& facts, Stack& stack, const std::optional<at::Generator>& generator) {
  const CpuScope scope;
  if (generator && facts.generator) {
    stack[*facts.generator] = *generator;
  } else if (generator) {
    stack.emplace_back(*generator);  // our own function has one argument more than the operator
  }
  if (facts.adds_in_float && has_16bit_tensor(stack)) {
    compute_in_float(facts, stack, call_kernel);
  } else {
    call_kernel(facts, stack);
  }
}

}  // namespace lockstep::fake_gpu
