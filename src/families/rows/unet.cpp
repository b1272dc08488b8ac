// SPDX-License-Identifier: BSD-3-Clause
#include "families/rows/rows.hpp"

namespace lockstep::families {

namespace {

std::optional<ModelKeys> unet_sizes(const TensorShapes& shapes) {
  const std::vector<std::int64_t>* first = nullptr;
  for (const std::size_t axes : {2U, 1U, 3U}) {
    if (first == nullptr) first = find_shape(shapes, "inc.double_conv.0.weight", 2 + axes);
  }
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
          .help = "U-Net for masks of classes and for fields of real numbers over 1 to 3 axes of space",
          .keys = {width_key(), depth_key(),
                   keys::choice("model.up", "transposed",
                                "How levels are enlarged: by transposed convolutions, or by linear interpolation. "
                                "bilinear is another name of linear (unet)",
                                {"transposed", "linear", "bilinear"}),
                   padding_key(), norm_key(), head_key()},
          .sizes = {{"depth", "4"}, {"norm", "batch"}},
          .head = {"outc.conv"},
          .stem = "inc.double_conv.0",
          .prefers_channels_last = true,
          .sizes_of = unet_sizes};
}

FamilyRow unet_classic_family() {
  return {.name = "unet_classic",
          .help = "U-Net of PDEBench and The Well: four levels with batch norms and tanh, over 1 to 3 axes of space",
          .keys = {width_key("32"), padding_key(), head_key()},
          .head = {"conv"},
          .stem = "encoder1.enc1conv1",
          .layers = {{"encoder{a}."},
                     {"bottleneck."},
                     {"upconv4.", "decoder4."},
                     {"upconv3.", "decoder3."},
                     {"upconv2.", "decoder2."},
                     {"upconv1.", "decoder1."},
                     {"conv."}},
          .prefers_channels_last = true};
}

/// The encoder is a ResNet with the stem of ImageNet.
FamilyRow unet_resnet_family() {
  FamilyRow family{.name = "unet_resnet",
                   .help = "U-Net with a ResNet as its encoder, named as in segmentation_models_pytorch",
                   .keys = resnet_keys(),
                   .sizes = {{"stem", "imagenet"}},
                   .head = {"segmentation_head.0"},
                   .stem = "encoder.conv1",
                   .layers = {{"encoder.conv1.", "encoder.bn1."},
                              {"encoder.layer{a}."},
                              {"decoder.blocks.{a}."},
                              {"segmentation_head."}},
                   .prefers_channels_last = true,
                   .libraries = {{.name = "torchvision",
                                  .names = {{"encoder.conv1.*", "conv1.*"},
                                            {"encoder.bn1.*", "bn1.*"},
                                            {"encoder.layer{s}.{i}.conv{n}.*", "layer{s}.{i}.conv{n}.*"},
                                            {"encoder.layer{s}.{i}.bn{n}.*", "layer{s}.{i}.bn{n}.*"},
                                            {"encoder.layer{s}.{i}.downsample.{n}.*", "layer{s}.{i}.downsample.{n}.*"}},
                                  .is_import_only = true}}};
  family.keys.push_back(head_key());
  family.keys.push_back(keys::integers("model.decoder_widths", "256,128,64,32,16",
                                       "Output channels of the five levels of the decoder, from the smallest images "
                                       "to the largest (unet_resnet*)",
                                       1, kMaxSize));
  for (ModelPreset preset : resnet_family().presets) {
    if (preset.name != "resnet18" && preset.name != "resnet34" && preset.name != "resnet50") continue;
    preset.name = "unet_" + preset.name;
    std::erase(preset.sizes, std::pair<std::string, std::string>("stem", "small"));
    family.presets.push_back(std::move(preset));
  }
  return family;
}

}  // namespace lockstep::families
