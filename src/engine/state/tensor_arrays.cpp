// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/engine/stateful.hpp>

#include <torch/types.h>

#include "engine/state/device_copies.hpp"
#include "parallel/store/tensor_collectives.hpp"

namespace lockstep::engine {

checkpoints::Array array_of(const at::Tensor& tensor, const std::string& what) {
  const auto values = std::make_shared<at::Tensor>(tensor.detach().cpu().contiguous());
  return {.dtype = parallel::dtype_of(*values, what),
          .shape = values->sizes().vec(),
          .bytes = parallel::bytes_of(*values),
          .owner = values};
}

void StateWriter::put(const std::string& path, const at::Tensor& tensor) const {
  if (!is_writer_) return;
  const bool is_queued = copies_ != nullptr && !tensor.is_cpu();
  archive_->put(path, is_queued ? copies_->queue(tensor, path) : array_of(tensor, path));
}

at::Tensor tensor_over(const checkpoints::Array& array) {
  return at::from_blob(const_cast<std::byte*>(array.bytes.data()), array.shape,
                       at::TensorOptions().dtype(parallel::scalar_type_of(array.dtype)));
}

}  // namespace lockstep::engine
