// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace lockstep::fake_gpu {

/// An attribute of each device; 0 for those that nobody needs.
/// @param attribute  cudaDeviceAttr or CUdevice_attribute, which have the same numbers
int attribute_of_device(int attribute);

}  // namespace lockstep::fake_gpu
