// SPDX-License-Identifier: BSD-3-Clause
#include "models/families/feature_net.hpp"

#include <torch/types.h>

#include <cmath>

#include "models/families/rows.hpp"
#include "models/layers/channels_last.hpp"
#include "models/layers/initial_values.hpp"

namespace lockstep::models {

FeatureNet::FeatureNet(const FeatureNetParts& parts) {
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

void require_feature_net_images(const std::string& name, const Task& task) {
  constexpr std::int64_t kMinSize = 32;  // five strides of 2
  require_images(name, task, 3);
  require_pixels(name, task, kMinSize);
}

}  // namespace lockstep::models
