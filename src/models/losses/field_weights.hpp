// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/batch.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/core/task.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>

// Fields are [N, C, space...]: N samples, C channels of all steps, one after the other.
namespace lockstep::models {

/// loss.area and loss.channel_weights.
KeySpecs field_weight_keys();

/// The weights of points and channels that loss.area and loss.channel_weights state, and those of samples.
class FieldWeights {
 public:
  FieldWeights() = default;
  /// The keys that the section has count. Logs which rule applies to the latitudes of a region.
  /// @throws ConfigError  the fields have no latitudes, or another number of channels
  static FieldWeights from(const Section& loss, const Task& task);

  bool has_area() const noexcept { return rows_.defined(); }
  bool has_channels() const noexcept { return channels_.defined(); }
  bool has_samples() const noexcept { return has_samples_; }
  /// The weights of latitudes, which can be multiplied with `fields`; undefined if all points weigh the same.
  /// @throws DataError  the fields have another number of rows
  at::Tensor area(const at::Tensor& fields) const;
  /// The weights of channels, which can be multiplied with `values`; undefined if all channels weigh the same.
  /// @param values  [N, C, ...]
  /// @throws DataError  C is no multiple of the number of weights
  at::Tensor channels(const at::Tensor& values) const;
  /// The weights of the samples of a batch, which can be multiplied with `values`; undefined if all weigh the same.
  /// @param values  [N, ...]
  at::Tensor samples(const batch::Batch& batch, const at::Tensor& values) const;

 private:
  std::size_t axis_ = 0;  // axis of space of rows_
  at::Tensor rows_;       // [rows] float64; undefined = none
  at::Tensor channels_;   // [channels of a step] float64; undefined = none
  bool has_samples_ = false;
};

/// The targets of a batch that count: those for which its value `mask` is not 0.
/// @param target  the first target of the batch
/// @return        bool with the shape of `target`; undefined if the batch has no such value
/// @throws DataError  the shape of the mask does not fit
at::Tensor mask_of(const batch::Batch& batch, const at::Tensor& target);

/// The weights of the samples of a batch, its value `weight` [N], with the type and the number of dimensions of `like`,
/// so that they can be multiplied with it.
/// @param like  [N, ...]
/// @throws DataError  the batch has no such weights
at::Tensor sample_weights(const batch::Batch& batch, const at::Tensor& like);

/// The values where the mask is true, and 0, without a gradient, elsewhere. An undefined mask changes nothing.
at::Tensor without_gaps(const at::Tensor& values, const at::Tensor& mask);

}  // namespace lockstep::models
