// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace lockstep::optim {

/// The number of elements after which no further tensor is stacked.
inline constexpr std::int64_t kStackElements = std::int64_t{1} << 24;

/// Divides a list so that stacks of one part after another need a bounded amount of memory, but for a large tensor.
std::vector<std::vector<at::Tensor>> divided_for_stacks(const std::vector<at::Tensor>& tensors);

/// Memory for tensors, one behind the other, so that one operation changes all of them.
///
/// Each tensor begins at a row of kRowElements; the elements behind its end, up to the next row, have no meaning.
class TensorStack {
 public:
  static constexpr std::int64_t kRowElements = 64;

  /// The values are undefined.
  /// @param like  tensors without gaps, on one device; the parts have their sizes and strides
  TensorStack(const std::vector<at::Tensor>& like, at::ScalarType type);
  /// Copies tensors of one type. One launch.
  static TensorStack of(const std::vector<at::Tensor>& tensors, at::ScalarType type);
  static TensorStack of(const std::vector<at::Tensor>& tensors) { return of(tensors, tensors.front().scalar_type()); }

  /// [R, kRowElements]
  const at::Tensor& rows() const noexcept { return rows_; }
  const std::vector<at::Tensor>& parts() const noexcept { return parts_; }
  /// The rows of `count` parts.
  at::Tensor rows_of(std::size_t first, std::size_t count) const;
  /// The first row of a part, and where the last part ends.
  std::int64_t first_row(std::size_t part) const { return first_rows_.at(part); }
  /// The first `count` parts of other memory that is laid out like this.
  /// @param rows  [R, kRowElements] of any type
  std::vector<at::Tensor> parts_of(const at::Tensor& rows, std::size_t count) const;
  std::vector<at::Tensor> parts_of(const at::Tensor& rows) const { return parts_of(rows, parts_.size()); }
  /// Repeats a value of each of the first parts for its rows, to be combined with these. One launch.
  /// @param values  a tensor of shape S for each part, of one type
  /// @return        [S..., R, 1]
  at::Tensor by_row(const std::vector<at::Tensor>& values) const;

 private:
  at::Tensor rows_;
  std::vector<at::Tensor> parts_;
  std::vector<std::int64_t> first_rows_;
};

}  // namespace lockstep::optim
