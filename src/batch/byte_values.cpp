// SPDX-License-Identifier: BSD-3-Clause
#include "batch/byte_values.hpp"

#include <ATen/ops/arange.h>

namespace lockstep::batch {

at::Tensor values_of_bytes(const at::Tensor& bytes, const at::Tensor& table, at::MemoryFormat format) {
  const bool is_channels_last = format == at::MemoryFormat::ChannelsLast;
  // Bytes are reordered rather than numbers, of which there are four times as many bytes.
  const at::Tensor dense = (is_channels_last ? bytes.permute({0, 2, 3, 1}) : bytes).contiguous();
  at::Tensor places = dense.to(at::kInt);
  const std::int64_t channels = bytes.size(1);
  if (channels > 1) {
    const at::Tensor first = at::arange(0, 256 * channels, 256, places.options());
    places.add_(is_channels_last ? first : first.view({channels, 1, 1}));
  }
  const at::Tensor numbers = table.to(bytes.device(), /*non_blocking=*/true).flatten();
  const at::Tensor values = numbers.index_select(0, places.flatten()).view(dense.sizes());
  return is_channels_last ? values.permute({0, 3, 1, 2}) : values;
}

Batch with_values(Batch batch, at::MemoryFormat format) {
  if (!batch.byte_tables()) return batch;
  for (const auto& [name, table] : *batch.byte_tables()) {
    batch.set(name, values_of_bytes(batch.tensor(name), table, format));
  }
  batch.set_byte_tables(nullptr);
  return batch;
}

}  // namespace lockstep::batch
