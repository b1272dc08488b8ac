// SPDX-License-Identifier: BSD-3-Clause
#include "data/sample_batch.hpp"

#include <lockstep/core/error.hpp>

#include <ATen/ops/alias.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <utility>

#include "batch/collate.hpp"
#include "core/text/text.hpp"

namespace lockstep::data {

namespace {

at::MemoryFormat format_of(const Field& field, bool prefers_channels_last) {
  const bool is_last = field.format == FieldFormat::channels_last ||
                       (field.format == FieldFormat::any && prefers_channels_last && field.shape.size() == 3);
  return is_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
}

/// Throws the current exception. Whatever a user's code throws is a fault of the data.
[[noreturn]] void throw_as_data_error() {
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    throw DataError(message_of(error));
  }
}

}  // namespace

BatchBuffer::BatchBuffer(const std::vector<Field>& layout, std::int64_t rows, const BufferOptions& options)
    : layout_(layout), row_count_(rows), views_(static_cast<std::size_t>(rows)), rows_(static_cast<std::size_t>(rows)) {
  for (const Field& field : layout) {
    std::vector<std::int64_t> shape = {rows};
    shape.insert(shape.end(), field.shape.begin(), field.shape.end());
    whole_.push_back(at::empty(shape, at::TensorOptions(field.dtype).pinned_memory(options.pins_memory),
                               format_of(field, options.prefers_channels_last)));
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      views_[i].push_back(whole_.back().select(0, static_cast<std::int64_t>(i)));
    }
  }
  for (std::size_t i = 0; i < rows_.size(); ++i) restore(i);
}

bool BatchBuffer::fits(const std::vector<Field>& layout, std::int64_t rows) const {
  return rows <= row_count_ && layout == layout_;
}

bool BatchBuffer::is_free() const {
  const std::size_t own_references = rows_.size() + 1;  // the views of the samples, and the tensor of all
  const bool is_unshared = std::all_of(whole_.begin(), whole_.end(), [&](const at::Tensor& tensor) {
    return tensor.storage().use_count() == own_references;
  });
  if (!is_unshared) return false;
  for (const std::vector<at::Tensor>& views : views_) {
    for (const at::Tensor& view : views) {
      if (view.use_count() != 2) return false;  // here and in rows_
    }
  }
  // Everything that the last owner did with the memory is before what its next user does.
  std::atomic_thread_fence(std::memory_order_acquire);
  return true;
}

batch::ValueMap BatchBuffer::take_additions(std::size_t i) {
  batch::ValueMap& row = rows_[i];
  for (std::size_t f = 0; f < layout_.size(); ++f) {
    const auto found = row.find(layout_[f].name);
    const bool is_own =
        found != row.end() && found->second.is<at::Tensor>() && found->second.as<at::Tensor>().is_same(views_[i][f]);
    if (is_own) continue;
    throw DataError("fill must write to the tensor '" + layout_[f].name + "' that it receives, not replace it");
  }
  batch::ValueMap additions;
  if (row.size() == layout_.size()) return additions;
  additions.swap(row);
  for (const Field& field : layout_) row.insert(additions.extract(field.name));
  return additions;
}

void BatchBuffer::restore(std::size_t i) {
  rows_[i].clear();
  for (std::size_t f = 0; f < layout_.size(); ++f) rows_[i][layout_[f].name] = views_[i][f];
}

batch::ValueMap BatchBuffer::tensors(std::int64_t rows) const {
  batch::ValueMap tensors;
  // Tensors of their own: whatever is done to them does not change those of the buffer.
  for (std::size_t f = 0; f < layout_.size(); ++f) {
    tensors[layout_[f].name] = rows == row_count_ ? at::alias(whole_[f]) : whole_[f].narrow(0, 0, rows);
  }
  return tensors;
}

std::shared_ptr<BatchBuffer> BatchBuffers::acquire(const std::vector<Field>& layout, std::int64_t rows) {
  // LibTorch's allocator of page-locked memory reuses a block as soon as the copies to the GPU are finished, which the
  // references to a tensor do not show. So a new buffer there costs no allocation by the system.
  if (options_.pins_memory) return std::make_shared<BatchBuffer>(layout, rows, options_);
  const auto found = std::find_if(buffers_.begin(), buffers_.end(), [&](const auto& buffer) {
    return buffer.use_count() == 1 && buffer->fits(layout, rows) && buffer->is_free();
  });
  std::shared_ptr<BatchBuffer> buffer =
      found != buffers_.end() ? *found : std::make_shared<BatchBuffer>(layout, rows, options_);
  if (found != buffers_.end()) buffers_.erase(found);
  if (buffers_.size() >= max_) buffers_.erase(buffers_.begin());
  buffers_.push_back(buffer);
  return buffer;
}

SampleBatch::SampleBatch(const SampleDataset& dataset, std::span<const batch::Draw> draws,
                         const std::vector<Field>& layout, BatchBuffers* buffers)
    : dataset_(&dataset),
      draws_(draws),
      has_bytes_(
          std::any_of(layout.begin(), layout.end(), [](const Field& field) { return field.dtype == at::kByte; })),
      values_(draws.size()) {
  if (layout.empty()) return;
  buffer_ = buffers != nullptr ? buffers->acquire(layout, std::ssize(draws))
                               : std::make_shared<BatchBuffer>(layout, std::ssize(draws));
}

void SampleBatch::load(std::size_t i) {
  try {
    if (!buffer_) {
      values_[i] = dataset_->sample(draws_[i]);
      return;
    }
    dataset_->fill(draws_[i], buffer_->row(i));
    batch::ValueMap additions = buffer_->take_additions(i);
    if (!additions.empty()) values_[i] = std::move(additions);
  } catch (...) {
    if (buffer_) buffer_->restore(i);
    throw_as_data_error();
  }
}

batch::Batch SampleBatch::finish() {
  if (!buffer_) return batch::collated(values_, draws_);
  const auto has_additions = [](const batch::Value& value) { return value.is<batch::ValueMap>(); };
  batch::Batch batch({}, std::ssize(draws_));
  if (std::any_of(values_.begin(), values_.end(), has_additions)) {
    for (batch::Value& value : values_) {
      if (!has_additions(value)) value = batch::ValueMap();
    }
    batch = batch::collated(values_, draws_);
  }
  for (auto& [name, tensor] : buffer_->tensors(std::ssize(draws_))) batch.set(name, std::move(tensor));
  if (has_bytes_) batch.set_byte_tables(dataset_->layout().byte_tables);
  return batch;
}

}  // namespace lockstep::data
