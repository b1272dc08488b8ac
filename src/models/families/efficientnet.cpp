// SPDX-License-Identifier: BSD-3-Clause
// EfficientNet-B0. Parameters are named as in torchvision.
// Source: Tan and Le, "EfficientNet: Rethinking model scaling for convolutional neural networks", 2019, table 1.
#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "models/families/feature_net.hpp"
#include "models/families/inverted_residual.hpp"
#include "models/families/rows.hpp"
#include "models/layers/initial_values.hpp"

namespace lockstep::models {

namespace {

/// Equal blocks; the first one has the stride.
struct EfficientStage {
  std::int64_t factor;  ///< channels of the depthwise convolution per input channel
  std::int64_t kernel;
  std::int64_t stride;
  std::int64_t out;
  std::int64_t count;
};

constexpr EfficientStage kEfficientNetB0[] = {{1, 3, 1, 16, 1},  {6, 3, 2, 24, 2},  {6, 5, 2, 40, 2}, {6, 3, 2, 80, 3},
                                              {6, 5, 1, 112, 3}, {6, 5, 2, 192, 4}, {6, 3, 1, 320, 1}};

std::int64_t efficientnet_blocks() {
  std::int64_t count = 0;
  for (const EfficientStage& stage : kEfficientNetB0) count += stage.count;
  return count;
}

/// Uniform in +-1/sqrt(out).
void uniform_by_outputs(at::Tensor& weight) {
  const double bound = 1 / std::sqrt(static_cast<double>(weight.size(0)));
  draw_uniform(weight, -bound, bound);
}

std::shared_ptr<ConvNorm> efficientnet_unit(std::int64_t in, std::int64_t out, std::int64_t kernel,
                                            std::int64_t stride) {
  return std::make_shared<ConvNorm>(
      in, out, ConvNormOptions{.kernel = kernel, .stride = stride, .activation = UnitActivation::silu});
}

std::shared_ptr<InvertedResidual> efficientnet_block(const EfficientStage& stage, std::int64_t in, std::int64_t out,
                                                     std::int64_t stride, double drop_path) {
  const std::int64_t expanded = scaled_channels(in, static_cast<double>(stage.factor));
  return std::make_shared<InvertedResidual>(
      InvertedResidualOptions{.in = in,
                              .expanded = expanded,
                              .out = out,
                              .kernel = stage.kernel,
                              .stride = stride,
                              .activation = UnitActivation::silu,
                              .excitation = std::make_shared<SqueezeExcitation>(
                                  expanded, std::max<std::int64_t>(1, in / 4), UnitActivation::silu, /*is_hard=*/false),
                              .drop_path = drop_path});
}

}  // namespace

std::shared_ptr<Model> make_efficientnet(const Section& model, const Task& task) {
  require_feature_net_images(model.text("name"), task);
  const double factor = model.real("width_mult");
  FeatureNetParts parts{.initialize_linear = uniform_by_outputs};
  std::int64_t in = scaled_channels(32, factor);
  parts.features->add("0", efficientnet_unit(task.sample_shape[0], in, 3, 2));
  // Block i of n is skipped with a probability of drop_path * i / n as in torchvision.
  const double step = model.real("drop_path") / static_cast<double>(efficientnet_blocks());
  std::int64_t block = 0;
  int number = 1;
  for (const EfficientStage& stage : kEfficientNetB0) {
    const std::int64_t out = scaled_channels(stage.out, factor);
    const auto blocks = std::make_shared<BlockSequence>();
    for (std::int64_t i = 0; i < stage.count; ++i, ++block, in = out) {
      blocks->add(std::to_string(i),
                  efficientnet_block(stage, in, out, i == 0 ? stage.stride : 1, step * static_cast<double>(block)));
    }
    parts.features->add(std::to_string(number++), blocks);
  }
  parts.features->add(std::to_string(number), efficientnet_unit(in, 4 * in, 1, 1));
  parts.classifier->add("0", std::make_shared<Dropout>(model.real("head_dropout")));
  parts.classifier->add("1", std::make_shared<Linear>(4 * in, task.classes));
  return std::make_shared<FeatureNet>(parts);
}

}  // namespace lockstep::models
