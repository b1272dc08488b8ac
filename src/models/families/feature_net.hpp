// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/models/model.hpp>

#include <memory>
#include <string>
#include <vector>

#include "models/layers/sequence.hpp"

// N samples, C channels, H x W pixels.
namespace lockstep::models {

struct FeatureNetParts {
  std::shared_ptr<BlockSequence> features = std::make_shared<BlockSequence>();  ///< the first layer, "0", is a ConvNorm
  std::shared_ptr<BlockSequence> classifier = std::make_shared<BlockSequence>();  ///< takes the means of the channels
  void (*initialize_linear)(at::Tensor& weight);                                  ///< weights of the classifier
};

/// Convolutions ("features"), the mean over the pixels, linear layers ("classifier"): the form of torchvision's
/// networks for mobile devices. Convolutions start from N(0, 2 / (out * kernel^2)), biases with zero.
class FeatureNet : public Model {
 public:
  explicit FeatureNet(const FeatureNetParts& parts);

  at::Tensor forward(const at::Tensor& input) override;  ///< [N, C, H, W] -> [N, classes]

 private:
  std::shared_ptr<BlockSequence> features_;
  std::shared_ptr<BlockSequence> classifier_;
};

/// @throws ConfigError  the images have fewer pixels than the strides of the network divide to one
void require_feature_net_images(const std::string& name, const Task& task);

}  // namespace lockstep::models
