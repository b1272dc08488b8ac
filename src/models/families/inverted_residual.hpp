// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/models/layers.hpp>

#include <cstdint>
#include <memory>

#include "models/layers/sequence.hpp"

// N samples, C channels, H x W pixels (H' x W' after a stride).
namespace lockstep::models {

/// The activation behind a normalization.
enum class UnitActivation { none, relu, relu6, hardswish, silu };

at::Tensor activated(UnitActivation activation, const at::Tensor& input);

struct ConvNormOptions {
  std::int64_t kernel = 1;  ///< side; odd
  std::int64_t stride = 1;
  std::int64_t groups = 1;
  UnitActivation activation = UnitActivation::none;
  BatchNormOptions norm = {};
};

/// Convolution without a bias ("0"), BatchNorm ("1"), activation.
class ConvNorm : public Block {
 public:
  ConvNorm(std::int64_t in, std::int64_t out, const ConvNormOptions& options);
  at::Tensor forward(const at::Tensor& input) override;  ///< [N, in, H, W] -> [N, out, H', W']

 private:
  UnitActivation activation_;
  std::shared_ptr<Conv2d> conv_;
  std::shared_ptr<BatchNorm> norm_;
};

/// Multiplies each channel by a factor in [0, 1], which two 1x1 convolutions ("fc1", "fc2") compute from the means of
/// all channels. Source: Hu et al., "Squeeze-and-excitation networks", 2018, section 3.
class SqueezeExcitation : public Block {
 public:
  /// @param squeezed    channels between the two convolutions
  /// @param activation  between them
  /// @param is_hard     the factors are a hard sigmoid instead of a sigmoid
  SqueezeExcitation(std::int64_t channels, std::int64_t squeezed, UnitActivation activation, bool is_hard);
  at::Tensor forward(const at::Tensor& input) override;  ///< [N, channels, H, W] -> the same

 private:
  UnitActivation activation_;
  bool is_hard_;
  std::shared_ptr<Conv2d> fc1_;
  std::shared_ptr<Conv2d> fc2_;
};

struct InvertedResidualOptions {
  std::int64_t in;
  std::int64_t expanded;  ///< channels of the depthwise convolution
  std::int64_t out;
  std::int64_t kernel;  ///< kernel size of the depthwise convolution
  std::int64_t stride;  ///< stride of the depthwise convolution
  UnitActivation activation;
  BatchNormOptions norm = {};
  std::shared_ptr<Block> excitation = nullptr;  ///< behind the depthwise convolution, or null
  double drop_path = 0;                         ///< probability that a sample skips the block
  const char* layers_name = "block";
  bool has_plain_projection = false;  ///< the last convolution and its norm are two layers instead of one
};

/// 1x1 convolution to more channels, depthwise convolution, 1x1 convolution to fewer channels. The input is added to
/// the output if both have the same shape. Source: Sandler et al., "MobileNetV2", 2018, figure 4.
class InvertedResidual : public Block {
 public:
  explicit InvertedResidual(const InvertedResidualOptions& options);
  at::Tensor forward(const at::Tensor& input) override;  ///< [N, in, H, W] -> [N, out, H', W']

 private:
  bool has_shortcut_;
  std::shared_ptr<BlockSequence> layers_;
  std::shared_ptr<DropPath> drop_path_;
};

/// `channels * factor`, rounded to a multiple of 8 that is at least 8 and at least 0.9 of the product.
/// Source: Sandler et al., "MobileNetV2", 2018, published implementation.
std::int64_t scaled_channels(std::int64_t channels, double factor);

}  // namespace lockstep::models
