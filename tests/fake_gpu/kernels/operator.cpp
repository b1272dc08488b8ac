// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/kernels/operator.hpp"

#include <ATen/cuda/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGuard.h>

#include <cstddef>
#include <exception>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "fake_gpu/kernels/call.hpp"
#include "fake_gpu/kernels/copy.hpp"
#include "fake_gpu/kernels/foreach.hpp"

namespace lockstep::fake_gpu {

namespace {

Stack popped(Stack& stack, std::size_t count) {
  const auto first = stack.end() - static_cast<std::ptrdiff_t>(count);
  Stack arguments(std::make_move_iterator(first), std::make_move_iterator(stack.end()));
  stack.erase(first, stack.end());
  return arguments;
}

at::Tensor empty_on(at::Device device, const TensorLayout& layout) {
  if (!layout.is_defined) return {};
  return at::Tensor(at::detail::empty_strided_cuda(layout.sizes, layout.strides, layout.type, device));
}

/// Gives an `out=` argument the size of the result.
void resize(const at::Tensor& output, at::IntArrayRef sizes, at::IntArrayRef strides) {
  if (output.sizes() == sizes) return;
  output.resize_(sizes);
  if (output.strides() != strides) output.as_strided_(sizes, strides);
}

void resize_outputs(const Facts& facts, const Stack& arguments, const TensorOutcome& outcome) {
  auto layouts = outcome.outputs.begin();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!facts.arguments[i].is_output) continue;
    auto layout = layouts++->begin();
    visit_tensors(arguments[i], [&](const at::Tensor& output) {
      resize(output, layout->sizes, layout->strides);
      ++layout;
    });
  }
}

/// A call for whose values the host waits. An exception is one of the call, because the host can still throw it.
Stack compute_now(const Facts& facts, const Stack& arguments, const c10::cuda::CUDAStream& stream) {
  struct Found {
    Stack results = {};
    std::exception_ptr error = nullptr;
  };
  const auto found = std::make_shared<Found>();
  PreparedCall prepared = prepare(facts, arguments, {});
  const auto call = std::make_shared<const KernelCall>(std::move(prepared.call));
  launch(stream, facts.name.c_str(), std::move(prepared.ranges), [call, found] {
    try {
      found->results = compute(*call);
    } catch (...) {
      found->error = std::current_exception();
    }
  });
  stream.synchronize();
  if (found->error) std::rethrow_exception(found->error);
  return std::move(found->results);
}

/// An empty tensor for an `out=` argument, whose size is not yet known.
IValue empty_on_host(const IValue& output) {
  return with_tensors(output, [](const at::Tensor& tensor) {
    return at::empty({0}, tensor.options().device(at::kCPU).pinned_memory(false));
  });
}

Stack wait_for_results(const Facts& facts, const Stack& arguments, at::Device device) {
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream();
  Stack inputs = arguments;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (facts.arguments[i].is_output) inputs[i] = empty_on_host(inputs[i]);
  }
  const Stack computed = compute_now(facts, inputs, stream);
  std::vector<TensorCopy> copies;
  Stack results;
  for (std::size_t i = 0; i < computed.size(); ++i) {
    if (!facts.returns[i]) {
      results.push_back(with_tensors(computed[i], [&](const at::Tensor& value) {
        const at::Tensor made(
            at::detail::empty_strided_cuda(value.sizes(), value.contiguous().strides(), value.scalar_type(), device));
        copies.push_back({.target = made, .from = value});
        return made;
      }));
      continue;
    }
    results.push_back(arguments[*facts.returns[i]]);
    if (!facts.arguments[*facts.returns[i]].is_output) continue;  // its memory was written
    const at::Tensor& value = computed[i].toTensor();
    resize(results.back().toTensor(), value.sizes(), value.strides());
    copies.push_back({.target = results.back().toTensor(), .from = value});
  }
  if (!copies.empty()) queue_copies(stream, facts.name.c_str(), copies);
  return results;
}

}  // namespace

void Operator::operator()(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
  for (IValue& result : call(popped(*stack, facts_.arguments.size()))) stack->push_back(std::move(result));
}

Stack Operator::call(Stack arguments) {
  if (facts_.is_foreach && !is_one_kernel(facts_, arguments)) {
    facts_.handle.callBoxedForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd, arguments);
    return arguments;
  }
  if (facts_.is_fused) check_fused(facts_, arguments);
  move_host_tensors(facts_.host, arguments);
  const at::Device device = device_of(facts_, arguments);
  const c10::cuda::CUDAGuard guard(device);
  if (facts_.not_deterministic != nullptr) check_determinism(*facts_.not_deterministic, arguments);
  const bool waits = facts_.waits != nullptr && facts_.waits(arguments);
  return waits ? wait_for_results(facts_, arguments, device) : queue(arguments, device);
}

Stack Operator::queue(const Stack& arguments, at::Device device) {
  const std::shared_ptr<const TensorOutcome> outcome = outcomes_.of(facts_, arguments);
  resize_outputs(facts_, arguments, *outcome);
  Stack results;
  std::vector<at::Tensor> made;
  auto layouts = outcome->results.begin();
  for (std::size_t i = 0; i < facts_.returns.size(); ++i) {
    if (facts_.returns[i]) {
      results.push_back(arguments[*facts_.returns[i]]);
      continue;
    }
    c10::List<at::Tensor> list;
    for (const TensorLayout& layout : *layouts++) list.push_back(made.emplace_back(empty_on(device, layout)));
    const bool is_list = facts_.handle.schema().returns()[i].type()->kind() == c10::TypeKind::ListType;
    results.push_back(is_list ? IValue(list) : IValue(made.back()));
  }
  PreparedCall prepared = prepare(facts_, arguments, made);
  const auto call = std::make_shared<const KernelCall>(std::move(prepared.call));
  launch(c10::cuda::getCurrentCUDAStream(), facts_.name.c_str(), std::move(prepared.ranges), [call] { run(*call); });
  return results;
}

}  // namespace lockstep::fake_gpu
