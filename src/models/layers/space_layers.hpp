// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/core/task.hpp>
#include <lockstep/models/block.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/layers/field_borders.hpp"

// Layers of fields: N samples of C channels over 1 to 3 axes of space. Those of two axes are the layers of images.
namespace lockstep::models {

/// The paddings of key `model.padding`, one for each axis. A single value counts for all axes.
/// @throws ConfigError  a word is unknown, or there are neither one word nor as many as axes
std::vector<AxisPadding> axis_paddings(const Section& model, std::size_t axes);

struct SpaceConvolutionOptions {
  std::int64_t stride = 1;
  bool has_bias = true;
  std::int64_t padding = 0;    ///< zeros at each border
  bool is_transposed = false;  ///< padding must then be 0
};

/// A convolution over 1 to 3 axes with as many points of the kernel on each. Initialized as in PyTorch. The parameter
/// `weight` is [out, in, kernel...]; transposed [in, out, kernel...].
std::shared_ptr<Block> space_convolution(std::size_t axes, std::int64_t in, std::int64_t out, std::int64_t kernel,
                                         const SpaceConvolutionOptions& options = {});

/// A convolution of size 3 that keeps the size of the field.
class PaddedConvolution {
 public:
  PaddedConvolution() = default;
  PaddedConvolution(const std::vector<AxisPadding>& paddings, std::int64_t in, std::int64_t out, bool has_bias);

  /// The layer with the parameters, which its owner registers.
  const std::shared_ptr<Block>& layer() const noexcept { return layer_; }
  /// relu(norm(convolution(input))), with fewer memory accesses if possible.
  /// @param norm  layer, or null
  at::Tensor norm_relu(const at::Tensor& input, Block* norm) const;
  at::Tensor forward(const at::Tensor& input) const;

 private:
  at::Tensor with_borders(const at::Tensor& input) const;

  std::vector<AxisPadding> paddings_;  // empty = the layer adds zeros itself
  std::shared_ptr<Block> layer_;
};

/// Halves each axis, rounded down: the largest of each group of points.
at::Tensor halved(const at::Tensor& input);
/// Doubles each axis by linear interpolation between its first and last point.
at::Tensor doubled(const at::Tensor& input);
/// Zeros at the borders, half of them at the beginning (rounded down), up to the size of `like`.
at::Tensor padded_like(const at::Tensor& input, const at::Tensor& like);

/// @throws ConfigError  samples are not fields [channels, space...] over 1 to 3 axes, or the task has no target for
///                      each point
void require_space(const std::string& name, const Task& task);
/// "1 axis" or "2 axes".
std::string axes_text(std::size_t axes);
/// The sizes of the axes of space, such as "64 x 128".
std::string sizes_text(const Task& task);
/// The output channels for the targets of a task.
std::int64_t output_channels(const Task& task);

}  // namespace lockstep::models
