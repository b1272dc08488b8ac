// SPDX-License-Identifier: BSD-3-Clause
#include "models/families/feature_net.hpp"

#include <lockstep/core/error.hpp>

#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "models/families/rows.hpp"
#include "models/layers/channels_last.hpp"
#include "models/layers/initial_values.hpp"

namespace lockstep::models {

FeatureNet::FeatureNet(const FeatureNetParts& parts) : head_(parts.head), layers_(parts.layers) {
  features_ = register_module("features", parts.features);
  classifier_ = register_module("classifier", parts.classifier);
  const torch::NoGradGuard no_grad;
  for (const auto& item : named_parameters()) {
    at::Tensor parameter = item.value();
    if (parameter.dim() == 4) {
      const std::int64_t fan_out = parameter.size(0) * parameter.size(2) * parameter.size(3);
      draw_normal(parameter, 0, std::sqrt(2.0 / static_cast<double>(fan_out)));
      parameter.set_data(parameter.contiguous(at::MemoryFormat::ChannelsLast));
    } else if (parameter.dim() == 2) {
      parts.initialize_linear(parameter);
    } else if (item.key().ends_with("bias")) {
      parameter.zero_();
    }
  }
}

at::Tensor FeatureNet::forward(const at::Tensor& input) {
  // Convolutions and norms take less time on CPU with the channels innermost.
  const at::Tensor features = run(*features_, channels_last(input));
  return run(*classifier_, features.mean({2, 3}));
}

std::vector<std::vector<std::string>> FeatureNet::layers() const {
  std::vector<std::vector<std::string>> layers;
  for (const std::string& beginning : layers_) layers.push_back({beginning});
  layers.push_back({"classifier."});
  return layers;
}

void require_feature_net_images(const std::string& name, const Task& task) {
  constexpr std::int64_t kMinSize = 32;  // five strides of 2
  require_images(name.c_str(), task, 3);
  const std::int64_t side = std::min(task.sample_shape[1], task.sample_shape[2]);
  if (side > 0 && side < kMinSize) {
    throw ConfigError("model.name: " + name + " needs images of at least " + std::to_string(kMinSize) + " x " +
                      std::to_string(kMinSize) + " pixels, but they have " + std::to_string(task.sample_shape[1]) +
                      " x " + std::to_string(task.sample_shape[2]) + "; make them larger in data.transform");
  }
}

}  // namespace lockstep::models
