// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace at {
class Tensor;
}

namespace lockstep {

/// Named here so that a header can take `const Tensor&` without including LibTorch.
using Tensor = at::Tensor;

}  // namespace lockstep
