// SPDX-License-Identifier: BSD-3-Clause
#include "engine/measures/flop_counter.hpp"

#include <ATen/DeviceAccelerator.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <span>
#include <string_view>

#include "core/text/duration.hpp"

namespace lockstep::engine {

namespace {

constexpr std::int64_t kCpuSize = 768;
constexpr std::int64_t kGpuSize = 4096;
constexpr int kProducts = 3;

using Inputs = c10::ArrayRef<const c10::IValue>;

std::int64_t elements_of(const c10::IValue& value) { return value.toTensor().numel(); }

/// [m, k] x [k, n], or [b, m, k] x [b, k, n]; `first` is the position of the left factor.
std::int64_t product(Inputs inputs, std::size_t first) {
  return 2 * elements_of(inputs[first]) * inputs[first + 1].toTensor().size(-1);
}

std::int64_t product_of_first(Inputs inputs) { return product(inputs, 0); }
std::int64_t product_of_second(Inputs inputs) { return product(inputs, 1); }

/// The output for each output element, the weights of one output channel: input [n, c, ...], weight [out, c / groups,
/// ...]; for a transposed convolution, for each input element: weight [in, out / groups, ...].
std::int64_t convolution(Inputs inputs) {
  const at::Tensor& input = inputs[0].toTensor();
  const at::Tensor& weight = inputs[1].toTensor();
  const std::int64_t per_channel = weight.numel() / weight.size(0);
  if (inputs[6].toBool()) return 2 * input.numel() * per_channel;
  std::int64_t outputs = input.size(0) * weight.size(0);
  const auto at_axis = [&inputs](std::size_t argument, std::size_t axis) {
    const std::vector<std::int64_t> values = inputs[argument].toIntVector();
    return values.size() == 1 ? values[0] : values[axis];
  };
  for (std::size_t axis = 0; axis + 2 < static_cast<std::size_t>(input.dim()); ++axis) {
    const auto dimension = static_cast<std::int64_t>(axis) + 2;
    const std::int64_t kernel = at_axis(5, axis) * (weight.size(dimension) - 1) + 1;
    outputs *= (input.size(dimension) + 2 * at_axis(4, axis) - kernel) / at_axis(3, axis) + 1;
  }
  return 2 * outputs * per_channel;
}

/// Query [..., l, d], key [..., s, d], value [..., s, e]: l s d multiplications and additions, then l s e.
std::int64_t attention(Inputs inputs) {
  const at::Tensor& query = inputs[0].toTensor();
  const std::int64_t keys = inputs[1].toTensor().size(-2);
  return 2 * query.numel() / query.size(-1) * keys * (query.size(-1) + inputs[2].toTensor().size(-1));
}

/// Operations that do not call one another.
std::int64_t flops_of(std::string_view name, Inputs inputs) {
  using Count = std::int64_t (*)(Inputs);
  static const std::map<std::string_view, Count> counts = {
      {"aten::mm", product_of_first},
      {"aten::bmm", product_of_first},
      {"aten::addmm", product_of_second},
      {"aten::baddbmm", product_of_second},
      {"aten::addmm_", product_of_second},
      {"mkldnn::_linear_pointwise",
       [](Inputs given) { return 2 * elements_of(given[0]) * given[1].toTensor().size(0); }},
      {"aten::mv", [](Inputs given) { return 2 * elements_of(given[0]); }},
      {"aten::convolution", convolution},
      {"aten::_scaled_dot_product_flash_attention_for_cpu", attention},
      {"aten::_scaled_dot_product_flash_attention", attention},
      {"aten::_scaled_dot_product_efficient_attention", attention},
      {"aten::_scaled_dot_product_cudnn_attention", attention}};
  if (name.starts_with("lockstep::")) return inputs[0].toInt();  // models::KernelRecord
  const auto found = counts.find(name);
  return found == counts.end() ? 0 : found->second(inputs);
}

thread_local std::int64_t* counted = nullptr;

std::unique_ptr<at::ObserverContext> count_operation(const at::RecordFunction& function) {
  if (counted != nullptr) *counted += flops_of(function.name(), function.inputs());
  return nullptr;
}

}  // namespace

FlopCounter::FlopCounter()
    : callback_(at::addThreadLocalCallback(
          at::RecordFunctionCallback(count_operation).needsInputs(true).scopes({at::RecordScope::FUNCTION}))) {
  counted = &count_;
}

FlopCounter::~FlopCounter() {
  at::removeCallback(callback_);
  counted = nullptr;
}

double measured_peak_flops(const c10::Device& device, c10::ScalarType given) {
  // Products of float16 are slow on CPUs, where LibTorch converts their factors.
  const c10::ScalarType type = device.is_cpu() && given == at::kHalf ? at::kFloat : given;
  const std::int64_t size = device.is_cpu() ? kCpuSize : kGpuSize;
  const at::Tensor factor = at::full({size, size}, 0.5, at::TensorOptions().device(device).dtype(type));
  const auto wait = [&device] {
    if (!device.is_cpu()) at::accelerator::synchronizeDevice(device.index());
  };
  double best = 0;
  for (int i = 0; i <= kProducts; ++i) {
    wait();
    const auto began = std::chrono::steady_clock::now();
    at::mm(factor, factor);
    wait();
    const double seconds = seconds_since(began);
    const double flops = 2 * static_cast<double>(size * size * size);
    if (i > 0) best = std::max(best, flops / seconds);  // the first one allocates and selects kernels
  }
  return best;
}

}  // namespace lockstep::engine
