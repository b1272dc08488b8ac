// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace lockstep::fake_gpu {

/// Loads libfake_gpu_kernels.so beside this library, once LibTorch's CUDA half is in the process: kernels can be
/// replaced only after it has registered its own. Without that file LibTorch keeps them, and their launches are
/// refused.
void load_kernels();

}  // namespace lockstep::fake_gpu
