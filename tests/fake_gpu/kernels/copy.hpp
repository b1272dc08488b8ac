// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>

#include <vector>

#include "fake_gpu/fake_gpu.hpp"

namespace lockstep::fake_gpu {

struct TensorCopy {
  at::Tensor target;  ///< target on the device
  at::Tensor from;    ///< anywhere; one of the host must not change any more
};

/// Queues copies, with conversion of types, as one kernel.
/// @param name  of static lifetime
void queue_copies(const c10::cuda::CUDAStream& stream, const char* name, const std::vector<TensorCopy>& copies);

/// copy_ for CUDA. LibTorch's own stays where it is a copy of memory, between host and device always; its kernel for
/// conversions and other strides is replaced.
at::Tensor& copy(at::Tensor& self, const at::Tensor& from, bool non_blocking);

/// Queues work on a stream as LibTorch launches a kernel: an error that an earlier call has left is thrown here, too.
void launch(const c10::cuda::CUDAStream& stream, const char* name, std::vector<Range> ranges, Work work);

}  // namespace lockstep::fake_gpu
