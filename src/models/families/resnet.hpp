// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/models/layers.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

// N samples, C channels, H x W pixels.
namespace lockstep::models {

struct ResNetOptions {
  std::array<std::int64_t, 4> units;  ///< units in each stage
  bool has_bottlenecks;
  std::int64_t groups;
  std::int64_t width_per_group;
  std::int64_t channels;  ///< channels of the images
  std::int64_t width;     ///< width of the stem and of the first stage
  bool has_pooling;       ///< stem of ImageNet
  bool has_zero_residuals;
};

/// The options of section `model`.
/// @param channels  of the images
/// @throws ConfigError  keys contradict each other
ResNetOptions resnet_options(const Section& model, std::int64_t channels);

/// The convolutional layers of a residual network: the stem and four stages.
class ResNetBody {
 public:
  /// Registers the layers in `owner` under torchvision's names: conv1, bn1, layer1, ..., layer4.
  ResNetBody(Block& owner, const ResNetOptions& options);

  /// Sets the initial values of the convolutions.
  void initialize();

  /// @param input   [N, C, H, W]
  /// @param levels  receives the outputs of the stem (before its pooling) and of each stage, unless it is null
  /// @return        output of the last stage
  at::Tensor forward(const at::Tensor& input, Tensors* levels = nullptr) const;

  /// Channels of the outputs of the stem and of each stage.
  const std::vector<std::int64_t>& channels() const noexcept { return channels_; }

 private:
  bool has_pooling_;
  bool has_zero_residuals_;
  std::shared_ptr<Conv2d> stem_;
  std::shared_ptr<BatchNorm> norm_;
  std::vector<std::shared_ptr<Block>> stages_;
  std::vector<std::int64_t> channels_;
};

}  // namespace lockstep::models
