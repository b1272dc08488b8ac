// SPDX-License-Identifier: BSD-3-Clause
#include "batch/byte_values.hpp"

#include <ATen/ops/arange.h>
#include <c10/util/intrusive_ptr.h>

#include <mutex>
#include <vector>

namespace lockstep::batch {

namespace {

/// A table and its copy on a device.
struct KeptTable {
  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> table;
  at::Tensor copy;
};

}  // namespace

at::Tensor kept_on(const at::Tensor& table, at::Device device) {
  static std::mutex mutex;
  // Never destroyed: at the end of the process there may be no device any more.
  static auto& all_kept = *new std::vector<KeptTable>;
  if (table.device() == device) return table;
  const std::lock_guard<std::mutex> hold(mutex);
  std::erase_if(all_kept, [](const KeptTable& kept) { return kept.table.expired(); });
  for (const KeptTable& kept : all_kept) {
    if (kept.table._unsafe_get_target() == table.unsafeGetTensorImpl() && kept.copy.device() == device)
      return kept.copy;
  }
  // The copy is complete before any stream reads it.
  all_kept.push_back({decltype(KeptTable::table)(table.getIntrusivePtr()), table.to(device)});
  return all_kept.back().copy;
}

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
  const at::Tensor numbers = kept_on(table, bytes.device()).flatten();
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
