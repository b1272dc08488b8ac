// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/dtype.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace lockstep::optim {

/// One parameter inside a flat block. Begins on 64 bytes; what lies between two segments is padding.
struct Segment {
  std::string name;  ///< dotted name in the model, such as "conv1.weight"
  std::vector<std::int64_t> shape;
  std::int64_t offset = 0;  ///< elements from the start of the block
  std::int64_t count = 0;   ///< elements
};

/// A flat buffer of parameters of one dtype.
struct Block {
  DType dtype = DType::float32;  ///< float32 or float64
  std::byte* parameters = nullptr;
  std::int64_t count = 0;         ///< elements, padding included
  std::vector<Segment> segments;  ///< by ascending offset
  std::int64_t slice_begin = 0;   ///< this rank updates, and keeps optimizer state for, elements
  std::int64_t slice_end = 0;     ///<   [slice_begin, slice_end) only; borders on multiples of 64 bytes
};

/// How optimizers see parameters; parallel::ParameterStore is the implementation.
class FlatParameters {
 public:
  virtual ~FlatParameters() = default;

  virtual std::span<const Block> blocks() const = 0;
  /// Returns once the gradients of this step are averaged. Collective where several ranks train together.
  virtual void finish_gradients() {}
  /// The averaged gradient of one segment, contiguous, `count` elements; null when the parameter got none in this step
  /// (it is then left alone: none is not zero).
  virtual const std::byte* gradient(std::size_t block, std::size_t segment) const = 0;
  /// Gradients may be overwritten in place (clipping) through this; same memory as `gradient`.
  std::byte* mutable_gradient(std::size_t block, std::size_t segment) {
    return const_cast<std::byte*>(gradient(block, segment));
  }
  /// Makes all gradients undefined.
  virtual void drop_gradients() = 0;

  /// The only way parameters are written: `body` writes this rank's slices, and nobody reads before all have written.
  /// Collective over the ranks that share the parameters.
  virtual void write(const std::function<void()>& body) = 0;
  /// Sum over the ranks whose slices together make the whole. Collective over them.
  virtual double sum_over_slices(double value) const = 0;
  /// Maximum over the same ranks.
  virtual double max_over_slices(double value) const = 0;
};

}  // namespace lockstep::optim
