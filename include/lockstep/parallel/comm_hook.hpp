// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <vector>

namespace lockstep::parallel {

/// A bucket of this rank's own gradients, not divided by anything, as a communication hook sees it.
struct GradBucket {
  std::size_t index = 0;
  std::size_t count = 0;               ///< buckets of the step
  at::Tensor buffer;                   ///< [n] flat; what lies between two gradients is zero and should stay so
  std::vector<at::Tensor> gradients;   ///< views of the buffer with their parameters' shapes and strides
  std::vector<at::Tensor> parameters;  ///< of the same gradients, in the same order

  bool is_last() const { return index + 1 == count; }
};

/// Waits for a bucket's reduction and gives the result: the buffer itself, or a tensor of its size and type.
using Completion = std::function<at::Tensor()>;

/// Replaces the average of a bucket. Called on every rank in bucket order, from within backward, when the bucket is
/// ready; it starts what it needs and returns at once. The completions are then called in bucket order, too, so a hook
/// may use further collectives there. Averaging is the hook's own matter.
using CommHook = std::function<Completion(const GradBucket&)>;

/// The sum over ranks divided by their number: what happens without a hook.
CommHook all_reduce_hook(mpi::Collectives& collectives);
/// Leaves every rank its own gradients: the step without its communication, for measuring.
CommHook noop_hook();

}  // namespace lockstep::parallel
