// SPDX-License-Identifier: BSD-3-Clause
#include "families/rows/rows.hpp"

namespace lockstep::families {

namespace {

std::optional<ModelKeys> unet_sizes(const TensorShapes& shapes) {
  const auto* const first = find_shape(shapes, "inc.double_conv.0.weight", 4);
  if (first == nullptr) return std::nullopt;
  const bool has_norm = shapes.contains("inc.double_conv.1.weight");
  const bool has_statistics = shapes.contains("inc.double_conv.1.running_mean");
  return ModelKeys{{"width", std::to_string(first->front())},
                   {"depth", std::to_string(count_of(shapes, "down", ".maxpool_conv.1.double_conv.0.weight", 1))},
                   {"up", shapes.contains("up1.up.weight") ? "transposed" : "bilinear"},
                   {"norm", has_statistics ? "batch"
                            : has_norm     ? "group"
                                           : "none"}};
}

}  // namespace

FamilyRow unet_family() {
  return {.name = "unet",
          .help = "U-Net for masks of classes and for fields of real numbers",
          .keys = {width_key(), depth_key(),
                   keys::choice("model.up", "transposed",
                                "How levels are enlarged: by transposed convolutions, or by bilinear interpolation "
                                "(unet)",
                                {"transposed", "bilinear"}),
                   norm_key(), head_key()},
          .sizes = {{"depth", "4"}, {"norm", "batch"}},
          .head = {"outc.conv"},
          .stem = "inc.double_conv.0",
          .prefers_channels_last = true,
          .sizes_of = unet_sizes};
}

}  // namespace lockstep::families
