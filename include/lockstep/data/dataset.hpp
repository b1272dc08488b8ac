// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/batch.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/core/section.hpp>
#include <lockstep/core/task.hpp>

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep::data {

/// A target with this value is not counted in loss or metrics (PyTorch's ignore_index).
inline constexpr std::int64_t kIgnored = -100;

/// A finite, indexed set of samples. Every member may be called from several threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;
  virtual Task task() const = 0;
  /// The samples that are drawn, in that order: tensors with one row for each, and perhaps other values. The batch need
  /// not know its draws.
  /// @param draws  indices in [0, size())
  /// @throws DataError  a sample cannot be read
  virtual batch::Batch get(std::span<const batch::Draw> draws) const = 0;
  /// Which of a batch's values are the model's inputs and targets. By default "data" and "label".
  virtual batch::Roles roles() const { return {}; }
  /// Class of each sample, for samplers that look at classes. By default read from the targets, batch by batch.
  /// @throws DataError  a sample has no single class
  virtual std::vector<std::int64_t> labels() const;
  /// Width / height of each sample, for samplers that group by it. By default that of the task's sample_shape.
  /// @throws DataError  samples are not images
  virtual std::vector<double> aspect_ratios() const;
  /// What identifies the content, for checkpoints: equal data sets have equal digests, others almost surely not.
  virtual std::uint64_t digest() const = 0;
};

/// A tensor that every sample has, always of this shape and type.
struct Field {
  std::string name;
  std::vector<std::int64_t> shape;  ///< of one sample
  at::ScalarType dtype = at::kFloat;
};

/// A data set that gives its samples one by one; the loader's threads join them to batches. It overrides `sample`, or,
/// to spare the copy of large samples, `layout` and `fill`.
class SampleDataset : public Dataset {
 public:
  /// The values of one sample, each without the batch dimension: tensors, numbers, texts, lists, maps, or
  /// DataContainers for what must be padded or kept as it is. All samples have the same names. By default what `fill`
  /// writes.
  /// @throws DataError  it cannot be read
  virtual batch::ValueMap sample(const batch::Draw& draw) const;
  /// The tensors that `fill` writes. The default is none: samples come from `sample`.
  virtual std::vector<Field> layout() const { return {}; }
  /// Writes one sample.
  /// @param row  the tensors of `layout`, views of a batch with arbitrary contents: to be written in place. What is
  ///             added to it under other names is joined as the values of `sample` are
  /// @throws DataError  it cannot be read
  virtual void fill(const batch::Draw& draw, batch::ValueMap& row) const;
  /// @throws DataError  samples do not fit together; the message names them by their indices
  batch::Batch get(std::span<const batch::Draw> draws) const final;
};

/// The parts of a data source; null = it has no such part.
struct Splits {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> val = nullptr;
  std::shared_ptr<const Dataset> test = nullptr;
};

/// A row of the table of data sources. A user's program adds rows to a copy of builtin_sources().
struct Source {
  std::string name;
  std::string help;
  KeySpecs keys;  ///< of section `data`, in addition to the common ones
  /// @throws DataError, ConfigError  Not collective: each rank opens for itself
  std::function<Splits(const Section& data)> open;
};

/// The built-in sources: digits, idx, text, tokens.
const std::vector<Source>& builtin_sources();

/// Opens what `data.name` names.
/// @throws ConfigError  unknown name, with the known ones; and whatever the source throws
Splits open(const Section& data, const std::vector<Source>& sources = builtin_sources());

/// The keys of section `data`: the common ones and those of every source.
KeySpecs data_keys(const std::vector<Source>& sources = builtin_sources());

}  // namespace lockstep::data
