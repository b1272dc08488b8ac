// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/dataset.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "data/batch_buffers.hpp"

namespace lockstep::data {

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
  void load_row(std::size_t i);

  const SampleDataset* dataset_;
  std::span<const batch::Draw> draws_;
  bool has_bytes_;                       ///< a field is uint8
  std::shared_ptr<BatchBuffer> buffer_;  ///< null = the data set has no layout
  std::vector<batch::Value> values_;     ///< value of each sample, not including the tensors of the buffer
};

}  // namespace lockstep::data
