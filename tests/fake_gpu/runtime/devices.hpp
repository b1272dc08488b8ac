// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace lockstep::fake_gpu {

/// CUDA 13.0, which the headers are of.
constexpr int kCudaVersion = 13000;

int current_device();
cudaError_t use_device(int device);
bool is_device(int device);

/// Properties of a small GPU of compute capability 8.0, for which LibTorch has few special cases.
cudaDeviceProp properties_of(int device);
std::string bus_id_of(int device);

}  // namespace lockstep::fake_gpu
