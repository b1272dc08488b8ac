// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/batch.hpp>

#include <span>
#include <vector>

namespace lockstep::models {

struct ImageOptions {
  std::vector<double> mean = {};      ///< one value, or one for each of three channels; none = not normalized
  std::vector<double> std = {};       ///< has values if `mean` has
  std::int64_t pad_size_divisor = 1;  ///< height and width become multiples of this; >= 1
  double pad_value = 0;               ///< padding is added after normalization
  bool bgr_to_rgb = false;            ///< reverses the three channels
  bool rgb_to_bgr = false;            ///< the same; not both
};

/// Makes the input of a model from images: channels reversed, float32, (x - mean) / std, padded at the right and
/// bottom, stacked. A pure function of the options.
class ImagePreprocessor {
 public:
  /// @throws ConfigError  options that contradict one another
  explicit ImagePreprocessor(ImageOptions options);

  /// @param images  a list of [C, H, W], each padded to the largest rounded up, or a tensor [N, C, H, W], rounded up
  /// @return        [N, C, H', W'] float32
  /// @throws DataError  other shapes, or another kind of value
  at::Tensor operator()(const batch::Value& images) const;

 private:
  at::Tensor normalized(const at::Tensor& images) const;

  ImageOptions options_;
};

/// Stacks tensors of one number of dimensions: all but the first are padded at their ends to the largest, rounded up to
/// a multiple of `divisor`. Tensors of equal sizes are stacked as they are, if those are multiples.
/// @throws DataError  there is none, or their numbers of dimensions or first sizes differ
at::Tensor stack_batch(std::span<const at::Tensor> tensors, std::int64_t divisor = 1, double pad_value = 0);

}  // namespace lockstep::models
