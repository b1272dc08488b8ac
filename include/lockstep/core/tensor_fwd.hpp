// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace at {
class Tensor;
}

namespace lockstep {

/// Forward declaration, so that a header can use `const Tensor&` without including LibTorch.
using Tensor = at::Tensor;

}  // namespace lockstep
