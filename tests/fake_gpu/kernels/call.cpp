// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/kernels/call.hpp"

#include <ATen/Parallel.h>

#include <cstddef>

#include "fake_gpu/kernels/aliases.hpp"
#include "fake_gpu/kernels/compute.hpp"

namespace lockstep::fake_gpu {

namespace {

bool is_written(const ArgumentFacts& facts, const Stack& arguments) {
  return facts.is_written || (facts.is_written_if && arguments[*facts.is_written_if].toBool());
}

std::optional<RandomDraw> draw_for(const Facts& facts, const Stack& arguments) {
  if (!facts.is_random) return std::nullopt;
  return next_draw(facts.generator ? arguments[*facts.generator].toOptional<at::Generator>() : std::nullopt);
}

/// The host may change its tensors before the call runs, except for those that LibTorch makes from plain numbers.
at::Tensor kept(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->is_wrapped_number() ? tensor : tensor.clone();
}

}  // namespace

void use_threads(int threads) {
  if (at::get_num_threads() != threads) at::set_num_threads(threads);
}

PreparedCall prepare(const Facts& facts, const Stack& arguments, const std::vector<at::Tensor>& results) {
  const CpuScope scope;
  PreparedCall made{.call = {.facts = facts, .threads = at::get_num_threads(), .draw = draw_for(facts, arguments)}};
  if (made.call.draw) made.ranges = made.call.draw->ranges;
  Aliases aliases(device_bytes);
  const auto alias = [&](const at::Tensor& tensor, bool writes) {
    made.ranges.push_back(range_of(tensor, writes));
    return aliases.of(tensor);
  };
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const bool writes = is_written(facts.arguments[i], arguments);
    made.call.arguments.push_back(for_cpu(arguments[i], [&](const at::Tensor& tensor) {
      return tensor.is_cuda() ? alias(tensor, writes) : kept(tensor);
    }));
  }
  for (const at::Tensor& result : results) {
    made.call.results.push_back(result.defined() ? alias(result, /*writes=*/true) : result);
  }
  return made;
}

Stack compute(const KernelCall& call) {
  use_threads(call.threads);
  Stack stack = call.arguments;
  std::optional<at::Generator> generator;
  if (call.draw) generator = cpu_generator(*call.draw);
  compute(call.facts, stack, generator);
  return stack;
}

void run(const KernelCall& call) {
  const Stack stack = compute(call);
  const CpuScope scope;
  auto next = call.results.begin();
  const auto store = [&](const IValue& value) {
    const at::Tensor& result = *next++;
    if (result.defined()) result.copy_(value.toTensor());
  };
  for (std::size_t i = 0; i < call.facts.returns.size(); ++i) {
    if (call.facts.returns[i]) continue;
    if (stack[i].isTensor()) {
      store(stack[i]);
    } else {
      for (const IValue& element : stack[i].toListRef()) store(element);
    }
  }
}

}  // namespace lockstep::fake_gpu
