// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "fake_gpu/fake_gpu.hpp"
#include "fake_gpu/kernels/facts.hpp"
#include "fake_gpu/kernels/random.hpp"

namespace lockstep::fake_gpu {

/// One call of an operator on the memory of the device. It can run many times, as graphs need it, and keeps none of
/// that memory alive.
struct KernelCall {
  const Facts& facts;
  int threads = 1;  ///< those of the host, so that sums have the same order
  std::optional<RandomDraw> draw = {};
  Stack arguments = {};                  ///< arguments for the CPU
  std::vector<at::Tensor> results = {};  ///< tensors for the new results; undefined for a result that is none
};

struct PreparedCall {
  KernelCall call;
  std::vector<Range> ranges = {};  ///< the memory that it reads and writes
};

/// @param results  new tensors of the device
PreparedCall prepare(const Facts& facts, const Stack& arguments, const std::vector<at::Tensor>& results);

/// Computes with the values that the memory has now, and returns the results.
Stack compute(const KernelCall& call);

/// The same, and stores the new results.
void run(const KernelCall& call);

/// Has this thread, such as that of a stream, compute with so many threads.
void use_threads(int threads);

}  // namespace lockstep::fake_gpu
