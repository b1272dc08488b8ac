// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/dataset.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace lockstep::data {

struct BufferOptions {
  bool pins_memory = false;            ///< use page-locked memory
  bool prefers_channels_last = false;  ///< the order of fields of any order
};

/// The tensors of one batch and their views for each sample, which are allocated once and used for many batches.
class BatchBuffer {
 public:
  BatchBuffer(const std::vector<Field>& layout, std::int64_t rows, const BufferOptions& options = {});

  bool fits(const std::vector<Field>& layout, std::int64_t rows) const;
  /// Whether nothing outside this buffer refers to its memory.
  bool is_free() const;

  /// The values for SampleDataset::fill of sample i.
  batch::ValueMap& row(std::size_t i) { return rows_[i]; }
  /// Removes and returns the values that `fill` added to row i.
  /// @throws DataError  it replaced a tensor
  batch::ValueMap take_additions(std::size_t i);
  /// Makes row i what it was before `fill`.
  void restore(std::size_t i);
  /// Tensors of the first `rows` samples, which share the memory of the buffer.
  batch::ValueMap tensors(std::int64_t rows) const;

 private:
  std::vector<Field> layout_;
  std::int64_t row_count_;
  std::vector<at::Tensor> whole_;               ///< one tensor per field, for the whole batch
  std::vector<std::vector<at::Tensor>> views_;  ///< views of each sample, one per field
  std::vector<batch::ValueMap> rows_;           ///< the same tensors by name
};

/// Buffers for a sequence of batches. A buffer is used again when its last batch, and everything that shares memory
/// with it, is gone.
class BatchBuffers {
 public:
  /// @param max  number of buffers that are kept
  BatchBuffers(std::size_t max, const BufferOptions& options) : max_(max), options_(options) {}

  /// A buffer for a batch of `rows` samples. Not thread-safe.
  std::shared_ptr<BatchBuffer> acquire(const std::vector<Field>& layout, std::int64_t rows);

 private:
  std::size_t max_;
  BufferOptions options_;
  std::vector<std::shared_ptr<BatchBuffer>> buffers_;  ///< the most recently used one is the last
};

/// One batch of a data set of samples, which several threads can fill together.
class SampleBatch {
 public:
  /// @param draws    must outlive the batch
  /// @param layout   fields or byte_fields of the data set
  /// @param buffers  null = the batch gets new memory
  SampleBatch(const SampleDataset& dataset, std::span<const batch::Draw> draws, const std::vector<Field>& layout,
              BatchBuffers* buffers);

  /// Loads sample i. Thread-safe for different samples.
  /// @throws DataError  it cannot be read; exceptions of other libraries become a DataError
  void load(std::size_t i);
  /// The batch, after all samples are loaded.
  /// @throws DataError  the samples cannot be collated; the message states their indices
  batch::Batch finish();

 private:
  const SampleDataset* dataset_;
  std::span<const batch::Draw> draws_;
  bool has_bytes_;                       ///< a field is uint8
  std::shared_ptr<BatchBuffer> buffer_;  ///< null = the data set has no layout
  std::vector<batch::Value> values_;     ///< value of each sample, not including the tensors of the buffer
};

}  // namespace lockstep::data
