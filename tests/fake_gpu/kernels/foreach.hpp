// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "fake_gpu/kernels/facts.hpp"

namespace lockstep::fake_gpu {

/// Whether LibTorch runs an operator on lists of tensors (_foreach_*) as one kernel. It calls an operator for each
/// tensor where devices, types, sizes or strides differ.
bool is_one_kernel(const Facts& facts, const Stack& arguments);

/// Throws where LibTorch's fused optimizers refuse their lists, which have to be as for one kernel.
void check_fused(const Facts& facts, const Stack& arguments);

}  // namespace lockstep::fake_gpu
