// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/tensor.hpp>

#include <c10/core/ScalarType.h>

namespace lockstep::optim {

/// LibTorch's type of parameters, gradients and states.
inline at::ScalarType scalar_type_of(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return at::kDouble;
    case DType::bfloat16:
      return at::kBFloat16;
    case DType::float16:
      return at::kHalf;
    default:
      return at::kFloat;
  }
}

}  // namespace lockstep::optim
