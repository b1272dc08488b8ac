// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/kernels/host_tensors.hpp"

#include <c10/cuda/CUDAFunctions.h>

#include <map>

#include "fake_gpu/kernels/facts.hpp"

namespace lockstep::fake_gpu {

namespace {

constexpr std::size_t kIndices = 1;
constexpr std::size_t kValues = 2;

bool is_mask(const at::Tensor& index) {
  return index.is_cuda() && (index.scalar_type() == at::kBool || index.scalar_type() == at::kByte);
}

}  // namespace

// The rows are those of LibTorch 2.11: each operator was called with LibTorch's own kernel for CUDA.
HostTensors host_tensors_of(const std::string& name) {
  static const std::map<std::string, HostTensors> rows = {
      {"aten::_ctc_loss.Tensor", {.may_be_arrays = true}},
      {"aten::_ctc_loss_backward.Tensor", {.may_be_arrays = true}},
      {"aten::_foreach_add.Tensor", {.may_be_numbers = false}},
      {"aten::_foreach_add_.Tensor", {.may_be_numbers = false}},
      {"aten::_foreach_addcdiv.Tensor", {.argument = 3}},
      {"aten::_foreach_addcdiv_.Tensor", {.argument = 3}},
      {"aten::_foreach_addcmul.Tensor", {.argument = 3}},
      {"aten::_foreach_addcmul_.Tensor", {.argument = 3}},
      {"aten::_index_put_impl_", {.moved = {kIndices, kValues}, .unless = fills_under_mask}},
      {"aten::addcdiv", {.may_be_numbers = false}},
      {"aten::addcdiv.out", {.may_be_numbers = false}},
      {"aten::addcdiv_", {.may_be_numbers = false}},
      {"aten::clamp.Tensor", {.may_be_numbers = false}},
      {"aten::clamp_.Tensor", {.may_be_numbers = false}},
      {"aten::clamp_max.Tensor", {.may_be_numbers = false}},
      {"aten::clamp_max_.Tensor", {.may_be_numbers = false}},
      {"aten::clamp_min.Tensor", {.may_be_numbers = false}},
      {"aten::clamp_min_.Tensor", {.may_be_numbers = false}},
      {"aten::index.Tensor", {.moved = {kIndices}}},
      {"aten::index.Tensor_out", {.moved = {kIndices}}},
      {"aten::lerp.Scalar", {.may_be_numbers = false}},
      {"aten::lerp_.Scalar", {.may_be_numbers = false}},
      {"aten::where.self", {.moved = {0, 1, 2}}},
      {"aten::where.self_out", {.moved = {0, 1, 2}}},
  };
  const auto row = rows.find(name);
  return row == rows.end() ? HostTensors{} : row->second;
}

bool fills_under_mask(const Stack& arguments) {
  std::size_t indices = 0;
  bool has_mask = false;
  visit_tensors(arguments[kIndices], [&](const at::Tensor& index) {
    ++indices;
    has_mask = has_mask || is_mask(index);
  });
  const at::Tensor& values = arguments[kValues].toTensor();
  return indices == 1 && has_mask && values.is_cpu() && values.numel() == 1 && !arguments[3].toBool();
}

void move_host_tensors(const HostTensors& host, Stack& arguments) {
  if (host.moved.empty() || (host.unless != nullptr && host.unless(arguments))) return;
  std::optional<at::Device> device;
  visit_tensors(arguments, [&](const at::Tensor& tensor) {
    if (tensor.is_cuda()) device = tensor.device();
  });
  if (!device) return;
  for (const std::size_t i : host.moved) {
    const bool is_list = !arguments[i].isTensor();
    arguments[i] = with_tensors(arguments[i], [&](const at::Tensor& tensor) {
      return is_list || tensor.numel() == 1 ? tensor.to(*device) : tensor;
    });
  }
}

at::Device device_of(const Facts& facts, const Stack& arguments) {
  std::optional<at::Device> device;
  visit_tensors(arguments, [&](const at::Tensor& tensor) {
    if (!device && tensor.is_cuda()) device = tensor.device();
  });
  if (!device) return {at::kCUDA, c10::cuda::current_device()};
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const bool is_for_host = facts.host.argument == i;
    visit_tensors(arguments[i], [&](const at::Tensor& tensor) {
      TORCH_CHECK(!is_for_host || tensor.is_cpu(), "Expected scalars to be on CPU, got ", tensor.device(),
                  " instead. (", facts.name, ")");
      const bool is_accepted = tensor.dim() == 0 ? facts.host.may_be_numbers : facts.host.may_be_arrays;
      const bool may_differ = is_for_host || (tensor.is_cpu() && is_accepted && !facts.arguments[i].is_written);
      TORCH_CHECK(tensor.device() == *device || may_differ, "Expected all tensors to be on the same device, but found ",
                  "at least two devices, ", *device, " and ", tensor.device(), "! (", facts.name, ")");
    });
  }
  return *device;
}

}  // namespace lockstep::fake_gpu
