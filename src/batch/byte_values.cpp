// SPDX-License-Identifier: BSD-3-Clause
#include "batch/byte_values.hpp"

#include <ATen/ops/arange.h>
#include <c10/util/intrusive_ptr.h>

#include <mutex>
#include <utility>
#include <vector>

namespace lockstep::batch {

namespace {

/// Tables on devices, each of which is copied there once and kept as long as the original.
class DeviceTables {
 public:
  at::Tensor of(const at::Tensor& table, at::Device device) {
    if (table.device() == device) return table;
    const std::lock_guard<std::mutex> hold(mutex_);
    std::erase_if(kept_, [](const Kept& kept) { return kept.table.expired(); });
    for (const Kept& kept : kept_) {
      if (kept.table._unsafe_get_target() == table.unsafeGetTensorImpl() && kept.copy.device() == device)
        return kept.copy;
    }
    // The copy is complete before any stream reads it.
    kept_.push_back({Weak(table.getIntrusivePtr()), table.to(device)});
    return kept_.back().copy;
  }

 private:
  using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  struct Kept {
    Weak table;
    at::Tensor copy;
  };

  std::mutex mutex_;
  std::vector<Kept> kept_;
};

/// Never destroyed: at the end of the process there may be no device any more.
DeviceTables& device_tables() {
  static auto& tables = *new DeviceTables;
  return tables;
}

}  // namespace

at::Tensor kept_on(const at::Tensor& table, at::Device device) { return device_tables().of(table, device); }

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
