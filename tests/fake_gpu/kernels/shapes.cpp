// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/kernels/shapes.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/strides.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "fake_gpu/kernels/aliases.hpp"
#include "fake_gpu/kernels/compute.hpp"

namespace lockstep::fake_gpu {

namespace {

/// The numbers of an argument that tell two calls apart, beside their types.
enum class Telling { none, integers, all };

template <class Number>
void add_bytes(std::string& key, Number number) {
  std::array<char, sizeof(Number)> bytes;
  std::memcpy(bytes.data(), &number, sizeof(Number));
  key.append(bytes.data(), bytes.size());
}

void add_tensor(std::string& key, const at::Tensor& tensor) {
  key += 't';
  if (!tensor.defined()) return;
  const bool is_number = tensor.unsafeGetTensorImpl()->is_wrapped_number();
  key += static_cast<char>(tensor.device().type());
  key += static_cast<char>(tensor.scalar_type());
  key += static_cast<char>(is_number + 2 * tensor.is_conj() + 4 * tensor.is_neg());
  key += static_cast<char>(tensor.dim());
  for (const std::int64_t size : tensor.sizes()) add_bytes(key, size);
  for (const std::int64_t stride : tensor.strides()) add_bytes(key, stride);
}

void add_value(std::string& key, const IValue& value, Telling telling) {
  if (value.isTensor()) {
    add_tensor(key, value.toTensor());
  } else if (value.isList()) {
    key += 'l';
    add_bytes(key, value.toListRef().size());
    for (const IValue& element : value.toListRef()) add_value(key, element, telling);
  } else if (value.isInt()) {
    key += 'i';
    if (telling != Telling::none) add_bytes(key, value.toInt());
  } else if (value.isDouble()) {
    key += 'd';
    if (telling == Telling::all) add_bytes(key, value.toDouble());
  } else if (value.isBool()) {
    key += value.toBool() ? 'y' : 'n';
  } else if (value.isString()) {
    key += 's' + value.toStringRef() + '\0';
  } else {
    key += value.isNone() ? '-' : value.isComplexDouble() ? 'c' : value.isDevice() ? 'v' : 'g';
  }
}

/// Floating-point arguments, such as a learning rate, decide no shape and would need a trial in each step.
std::string key_of(const Facts& facts, const Stack& arguments) {
  std::string key;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const Telling usual = facts.arguments[i].is_number ? Telling::none : Telling::integers;
    add_value(key, arguments[i], facts.numbers_decide_size ? Telling::all : usual);
  }
  return key;
}

/// An expanded result, whose elements share memory, gets memory for each of them.
std::vector<std::int64_t> strides_of(const at::Tensor& tensor) {
  if (tensor.is_non_overlapping_and_dense()) return tensor.strides().vec();
  const c10::DimVector strides = c10::contiguous_strides(tensor.sizes());
  return {strides.begin(), strides.end()};
}

TensorLayout layout_of(const Facts& facts, const at::Tensor& tensor) {
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == at::kStrided && !tensor.is_quantized() && !tensor.is_nested(),
                              "fake GPU: ", facts.name, " returns a tensor that is sparse, quantized or nested, which ",
                              "the kernels in tests/fake_gpu/kernels cannot store");
  return {
      .is_defined = true, .sizes = tensor.sizes().vec(), .strides = strides_of(tensor), .type = tensor.scalar_type()};
}

std::vector<TensorLayout> layouts_of(const Facts& facts, const IValue& value) {
  if (value.isTensor() && !value.toTensor().defined()) return {TensorLayout{}};
  std::vector<TensorLayout> layouts;
  visit_tensors(value, [&](const at::Tensor& tensor) { layouts.push_back(layout_of(facts, tensor)); });
  return layouts;
}

/// The arguments with zeros, or ones. A kernel may resize the `out=` ones.
Stack zeros_for(const Facts& facts, const Stack& arguments) {
  const CpuScope scope;
  Aliases zeros(zero_bytes);
  Stack stack;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    stack.push_back(for_cpu(arguments[i], [&](const at::Tensor& tensor) -> at::Tensor {
      if (facts.arguments[i].is_output) {
        return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU));
      }
      if (!tensor.is_cuda()) return tensor;
      const at::Tensor made = zeros.of(tensor);
      return facts.rejects_zeros ? made.fill_(1) : made;
    }));
  }
  return stack;
}

TensorOutcome try_on_zeros(const Facts& facts, const Stack& arguments) {
  const Stack zeros = zeros_for(facts, arguments);
  Stack stack = zeros;
  std::optional<at::Generator> generator;
  if (facts.is_random) generator = at::detail::createCPUGenerator(0);
  compute(facts, stack, generator);
  TensorOutcome outcome;
  for (std::size_t i = 0; i < facts.returns.size(); ++i) {
    if (!facts.returns[i]) outcome.results.push_back(layouts_of(facts, stack[i]));
  }
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (facts.arguments[i].is_output) outcome.outputs.push_back(layouts_of(facts, zeros[i]));
  }
  return outcome;
}

}  // namespace

std::shared_ptr<const TensorOutcome> Outcomes::of(const Facts& facts, const Stack& arguments) {
  std::string key = key_of(facts, arguments);
  {
    const std::lock_guard hold(mutex_);
    const auto known = known_.find(key);
    if (known != known_.end()) return known->second;
  }
  auto outcome = std::make_shared<const TensorOutcome>(try_on_zeros(facts, arguments));
  const std::lock_guard hold(mutex_);
  return known_.try_emplace(std::move(key), std::move(outcome)).first->second;
}

}  // namespace lockstep::fake_gpu
