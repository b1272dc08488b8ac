// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <unordered_map>

#include "fake_gpu/fake_gpu.hpp"

namespace lockstep::fake_gpu {

/// The bytes of a storage of the device, which the result does not own: as on a GPU, queued work keeps no memory alive.
at::DataPtr device_bytes(const c10::Storage& storage);

/// That many zeros. They take no memory before they are written.
at::DataPtr zero_bytes(const c10::Storage& storage);

/// Makes tensors of the CPU that stand for tensors of the device: views of one storage are views of one storage again,
/// because kernels refuse some arguments that overlap.
class Aliases {
 public:
  using BytesOf = at::DataPtr (*)(const c10::Storage&);

  explicit Aliases(BytesOf bytes) : bytes_(bytes) {}
  at::Tensor of(const at::Tensor& tensor);

 private:
  BytesOf bytes_;
  std::unordered_map<const c10::StorageImpl*, c10::Storage> storages_ = {};
};

/// The memory from the first to the last element of a tensor.
Range range_of(const at::Tensor& tensor, bool is_write);

}  // namespace lockstep::fake_gpu
