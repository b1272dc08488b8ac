// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace lockstep::fake_gpu {

/// The settings that the environment decides about the kernels; it is read once.
struct KernelSettings {
  bool adds_16bit_in_float = true;  ///< FAKE_GPU_16BIT_PRODUCTS=float|cpu
};
const KernelSettings& kernel_settings();

}  // namespace lockstep::fake_gpu
