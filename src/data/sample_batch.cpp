// SPDX-License-Identifier: BSD-3-Clause
#include "data/sample_batch.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <new>
#include <utility>

#include "batch/collate.hpp"
#include "core/text/message.hpp"

namespace lockstep::data {

namespace {

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
    load_row(i);
  } catch (...) {
    if (buffer_) buffer_->restore(i);
    throw_as_data_error();
  }
}

void SampleBatch::load_row(std::size_t i) {
  if (!buffer_) {
    values_[i] = dataset_->sample(draws_[i]);
    return;
  }
  dataset_->fill(draws_[i], buffer_->row(i));
  batch::ValueMap additions = buffer_->take_additions(i);
  if (!additions.empty()) values_[i] = std::move(additions);
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
