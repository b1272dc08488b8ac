// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/ddp/prepared_batch.hpp"

#include <torch/types.h>

#include <utility>

#include "batch/byte_values.hpp"

namespace lockstep::parallel {

batch::Batch prepared_batch(const models::Model& model, batch::Batch placed, bool is_training, at::Device device,
                            at::ScalarType dtype) {
  const torch::NoGradGuard no_grad;
  const auto format = model.prefers_channels_last() ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
  batch::Batch prepared = model.preprocess(batch::with_values(std::move(placed), format), is_training);
  for (std::size_t i = 0; i < prepared.roles().inputs.size(); ++i) {
    const std::string& key = prepared.input_key(i);
    if (!prepared.has(key)) continue;  // the model says so when it requests it
    prepared.change(key, [&](at::Tensor& tensor) {
      if (tensor.is_floating_point()) tensor = tensor.to(device, dtype, /*non_blocking=*/true);
    });
  }
  return prepared;
}

}  // namespace lockstep::parallel
