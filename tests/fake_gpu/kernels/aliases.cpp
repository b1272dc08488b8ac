// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/kernels/aliases.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

namespace lockstep::fake_gpu {

at::DataPtr device_bytes(const c10::Storage& storage) {
  return {address(storage.mutable_data()), at::Device(at::kCPU)};
}

at::DataPtr zero_bytes(const c10::Storage& storage) {
  void* const zeros = std::calloc(std::max<std::size_t>(1, storage.nbytes()), 1);
  if (zeros == nullptr) throw std::bad_alloc();
  return {zeros, zeros, std::free, at::Device(at::kCPU)};
}

at::Tensor Aliases::of(const at::Tensor& tensor) {
  const c10::Storage& original = tensor.storage();
  c10::Storage& storage = storages_[original.unsafeGetStorageImpl()];
  if (!storage) {
    storage = c10::Storage(c10::Storage::use_byte_size_t(), original.nbytes(), bytes_(original), /*allocator=*/nullptr,
                           /*resizable=*/false);
  }
  at::Tensor alias = at::detail::make_tensor<at::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  c10::TensorImpl& facts = *alias.unsafeGetTensorImpl();
  facts.set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) facts.set_wrapped_number(true);
  facts._set_conj(tensor.is_conj());
  facts._set_neg(tensor.is_neg());
  return alias;
}

Range range_of(const at::Tensor& tensor, bool is_write) {
  if (tensor.numel() == 0) return {.is_write = is_write};
  std::int64_t elements = 1;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) elements += (tensor.size(i) - 1) * tensor.stride(i);
  return {.begin = tensor.const_data_ptr(),
          .bytes = static_cast<std::size_t>(elements) * tensor.element_size(),
          .is_write = is_write};
}

}  // namespace lockstep::fake_gpu
