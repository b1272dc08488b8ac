// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/core/section.hpp>
#include <lockstep/core/task.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep::data {

/// A target with this value is not counted in loss or metrics (PyTorch's ignore_index).
inline constexpr std::int64_t kIgnored = -100;

/// Samples ready for a model. N samples; shapes otherwise as the data set's Task says.
struct Batch {
  at::Tensor input;   ///< [N, sample_shape...] float32, or int64 for tokens
  at::Tensor target;  ///< [N] int64 classes, or [N, T] int64 tokens; kIgnored where nothing is asked
  std::map<std::string, at::Tensor> more = {};  ///< what else samples have, [N, ...], for a step of one's own
};

/// A finite, indexed set of samples. Every member may be called from several threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;
  virtual Task task() const = 0;
  /// The samples of `indices`, in that order.
  /// @param indices  each in [0, size())
  virtual Batch get(std::span<const std::int64_t> indices) const = 0;
  /// Class of each sample, for samplers that look at classes. By default read from the targets, batch by batch.
  /// @throws DataError  a sample has no single class
  virtual std::vector<std::int64_t> labels() const;
  /// Width / height of each sample, for samplers that group by it. By default that of the task's sample_shape.
  /// @throws DataError  samples are not images
  virtual std::vector<double> aspect_ratios() const;
  /// What identifies the content, for checkpoints: equal data sets have equal digests, others almost surely not.
  virtual std::uint64_t digest() const = 0;
};

/// The two halves of a data source.
struct Splits {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> test;
};

/// A row of the table of data sources. A user's program adds rows to a copy of builtin_sources().
struct Source {
  std::string name;
  std::string help;
  KeySpecs keys;  ///< of section `data`, beside the common ones
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
