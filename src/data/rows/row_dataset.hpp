// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/dataset.hpp>
#include <lockstep/random/random.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/rows/row_array.hpp"
#include "data/rows/row_targets.hpp"
#include "data/source/chunk_bytes.hpp"
#include "data/source/hash.hpp"

namespace lockstep::data {

/// Inputs and targets with the same number of samples.
struct RowPair {
  std::shared_ptr<const RowArray> inputs;
  std::shared_ptr<const RowTargets> targets;
  std::shared_ptr<const RowArray> weights = nullptr;  ///< one number for each sample; null = all weigh the same

  /// The weight of a sample.
  /// @throws DataError  it is negative or not finite
  float weight(std::int64_t index) const;
  /// @param layout  the order of the axes of the inputs
  std::uint64_t digest(std::uint64_t layout) const;
  /// The number of the chunk of a sample, in the array that costs more in a random order.
  std::int64_t chunk_of(std::int64_t index) const;
};

/// A part of the samples: positions [begin, begin + size) of a permutation, or of their own order.
struct RowRange {
  std::int64_t begin = 0;
  std::int64_t size = 0;
  std::optional<random::Permutation> order = {};

  std::int64_t index(std::int64_t position) const {
    const std::int64_t own = begin + position;
    return order ? static_cast<std::int64_t>((*order)(static_cast<std::uint64_t>(own))) : own;
  }
};

/// Samples of numbers of any shape. Values of a sample: "data" [...] float32; "label" as TargetKind says: a class
/// int64, [classes] float32 of 0 and 1, or [numbers] float32; "weight" [] float32 if the samples have weights.
class RowDataset : public SampleDataset, public SampleClasses, public SampleNames, public SampleChunks {
 public:
  struct RowDatasetOptions {
    RowRange range;
    std::vector<std::string> class_names = {};
    std::int64_t classes = 0;        ///< number for samples without targets
    bool has_last_channels = false;  ///< the inputs are [H, W, C] and become [C, H, W]
  };

  RowDataset(RowPair rows, RowDatasetOptions options);

  std::int64_t size() const override { return options_.range.size; }
  Task task() const override;
  SampleLayout layout() const override;
  void fill(const batch::Draw& draw, batch::ValueMap& row) const override;
  std::vector<std::int64_t> labels() const override;
  std::string sample_name(std::int64_t index) const override;
  /// Each sample is a chunk of its own if the arrays have none.
  std::vector<std::int64_t> chunks() const override;
  ChunkBytes chunk_bytes() const override { return bytes_of_chunks(); }
  std::uint64_t digest() const override;
  const RowPair& rows() const noexcept { return rows_; }

 private:
  RowPair rows_;
  RowDatasetOptions options_;
  std::vector<std::int64_t> shape_;
  LazyDigest digest_;
};

}  // namespace lockstep::data
