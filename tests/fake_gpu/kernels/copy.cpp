// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/kernels/copy.hpp"

#include <ATen/TensorIterator.h>
#include <ATen/ops/copy_native.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include <utility>

#include "fake_gpu/kernels/aliases.hpp"
#include "fake_gpu/kernels/compute.hpp"

namespace lockstep::fake_gpu {

namespace {

/// The condition under which LibTorch calls cudaMemcpyAsync for tensors of one device (copy_device_to_device).
bool is_copy_of_memory(const at::Tensor& self, const at::Tensor& from) {
  if (self.scalar_type() != from.scalar_type() || self.is_conj() != from.is_conj() || self.is_neg() != from.is_neg()) {
    return false;
  }
  return at::TensorIteratorConfig()
      .add_output(self)
      .add_const_input(from)
      .resize_outputs(false)
      .check_all_same_dtype(false)
      .check_all_same_device(false)
      .build()
      .is_contiguous();
}

bool needs_kernel(const at::Tensor& self, const at::Tensor& from) {
  return self.is_cuda() && self.device() == from.device() && self.layout() == at::kStrided &&
         from.layout() == at::kStrided && !self.is_same(from) && self.numel() > 0 && !is_copy_of_memory(self, from);
}

}  // namespace

void launch(const c10::cuda::CUDAStream& stream, const char* name, std::vector<Range> ranges, Work work) {
  C10_CUDA_CHECK(enqueue(stream.stream(), name, std::move(ranges), std::move(work)));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void queue_copies(const c10::cuda::CUDAStream& stream, const char* name, const std::vector<TensorCopy>& copies) {
  const CpuScope scope;
  Aliases aliases(device_bytes);
  std::vector<Range> ranges;
  const auto alias = [&](const at::Tensor& tensor, bool is_written) {
    if (!tensor.is_cuda()) return tensor;
    ranges.push_back(range_of(tensor, is_written));
    return aliases.of(tensor);
  };
  std::vector<TensorCopy> made;
  for (const auto& [target, from] : copies) made.push_back({.target = alias(target, true), .from = alias(from, false)});
  launch(stream, name, std::move(ranges), [made = std::move(made)] {
    const CpuScope on_worker;
    for (const auto& [target, from] : made) target.copy_(from);
  });
}

at::Tensor& copy(at::Tensor& self, const at::Tensor& from, bool non_blocking) {
  if (!needs_kernel(self, from)) return at::native::copy_(self, from, non_blocking);
  const c10::cuda::CUDAGuard guard(self.device());
  queue_copies(c10::cuda::getCurrentCUDAStream(), "aten::copy_", {{.target = self, .from = from}});
  return self;
}

}  // namespace lockstep::fake_gpu
