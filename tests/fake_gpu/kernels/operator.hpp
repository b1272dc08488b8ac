// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/boxing/OperatorKernel.h>
#include <c10/cuda/CUDAStream.h>

#include "fake_gpu/kernels/facts.hpp"
#include "fake_gpu/kernels/shapes.hpp"

namespace lockstep::fake_gpu {

/// A kernel for CUDA that queues an operator's kernel for CPUs on the current stream.
class Operator final : public c10::OperatorKernel {
 public:
  /// @param facts  of static lifetime: queued work and reports of races refer to them
  explicit Operator(const Facts& facts) : facts_(facts) {}
  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, Stack* stack);

 private:
  Stack call(Stack arguments);
  Stack queue(const Stack& arguments, at::Device device);

  const Facts& facts_;
  Outcomes outcomes_ = {};
};

}  // namespace lockstep::fake_gpu
