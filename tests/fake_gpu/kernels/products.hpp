// SPDX-License-Identifier: BSD-3-Clause
// A GPU multiplies 16-bit numbers and adds the products in float32; kernels for CPUs round more often.
#pragma once

#include <string>

#include "fake_gpu/kernels/facts.hpp"

namespace lockstep::fake_gpu {

/// Whether an operator is a sum of products, and FAKE_GPU_16BIT_PRODUCTS=float.
bool adds_in_float(const std::string& name);

bool has_16bit_tensor(const Stack& stack);

/// Calls `kernel(facts, stack)` with float32 in place of 16-bit tensors, and rounds its results.
void compute_in_float(const Facts& facts, Stack& stack, void (*kernel)(const Facts&, Stack&));

}  // namespace lockstep::fake_gpu
