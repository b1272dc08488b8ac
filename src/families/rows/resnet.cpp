// SPDX-License-Identifier: BSD-3-Clause
#include "families/rows/rows.hpp"

namespace lockstep::families {

namespace {

constexpr std::int64_t kResNetWidth = 64;  // width of all models of the libraries
constexpr std::int64_t kImagenetKernel = 7;
constexpr std::int64_t kSmallKernel = 3;

/// Words without a key: "units" in each stage, and the "unit" of which they are.
ModelPreset resnet_preset(const std::string& name, const std::string& units, const std::string& unit = "bottleneck",
                          const std::string& groups = "1", const std::string& width_per_group = "64") {
  return {.name = name,
          .sizes = {{"units", units},
                    {"unit", unit},
                    {"groups", groups},
                    {"width_per_group", width_per_group},
                    {"stem", name == "resnet18" ? "small" : "imagenet"}}};
}

std::optional<ModelKeys> resnet_sizes(const TensorShapes& shapes) {
  const auto* const stem = find_shape(shapes, "conv1.weight", 4);
  const auto* const inner = find_shape(shapes, "layer1.0.conv2.weight", 4);
  if (stem == nullptr || inner == nullptr || (*stem)[0] <= 0 || (*inner)[1] <= 0) return std::nullopt;
  if ((*stem)[2] != kImagenetKernel && (*stem)[2] != kSmallKernel) return std::nullopt;
  std::vector<std::int64_t> units;
  for (int s = 1; s <= 4; ++s) units.push_back(count_of(shapes, "layer" + std::to_string(s) + ".", ".conv1.weight"));
  const bool has_bottlenecks = shapes.contains("layer1.0.conv3.weight");
  const std::int64_t width = (*stem)[0];
  ModelKeys sizes = {{"units", list_text(units)},
                     {"unit", has_bottlenecks ? "bottleneck" : "basic"},
                     {"stem", (*stem)[2] == kImagenetKernel ? "imagenet" : "small"}};
  if (width != kResNetWidth) sizes.emplace_back("width", std::to_string(width));
  if (!has_bottlenecks) return sizes;
  const std::int64_t groups = (*inner)[0] / (*inner)[1];
  if (groups <= 0) return std::nullopt;
  const std::int64_t width_per_group = (*inner)[0] / groups * kResNetWidth / width;
  if (groups != 1) sizes.emplace_back("groups", std::to_string(groups));
  if (width_per_group != kResNetWidth) sizes.emplace_back("width_per_group", std::to_string(width_per_group));
  return sizes;
}

void complete_resnet(const FamilyRow&, const TrainedModel& model, PublicModel& result) {
  const auto& stem = shape_of(model, result.library, "conv1.weight", 4);
  if (stem[2] != kImagenetKernel) refuse(model, result.library, "the stem of small images (model.stem = small)");
  if (stem[0] != kResNetWidth) {
    refuse(model, result.library, "model.width = " + std::to_string(stem[0]) + "; it has 64");
  }
  if (!model.shapes.contains("layer1.0.conv3.weight")) result.arguments.clear();  // no bottlenecks
}

}  // namespace

KeySpecs resnet_keys() {
  return {width_key(),
          keys::choice("model.stem", "auto",
                       "First layers of a ResNet: a 3x3 convolution (small), or a 7x7 convolution and pooling, which "
                       "divide height and width by four, as for ImageNet (imagenet). auto = small for resnet18 and "
                       "imagenet for all others",
                       {"auto", "small", "imagenet"}),
          keys::integer("model.groups", "0",
                        "Groups of the 3x3 convolutions (resnet50 and deeper). 0 = that of the model", 0, kMaxSize),
          keys::integer("model.width_per_group", "0",
                        "Channels of each group in the first stage, for a model.width of 64 (resnet50 and deeper). 0 = "
                        "that of the model",
                        0, kMaxSize),
          keys::boolean("model.zero_init_residual", "false",
                        "Start each residual branch of a ResNet with the output zero")};
}

FamilyRow resnet_family() {
  return {.name = "resnet",
          .help = "Residual network, named as in torchvision",
          .keys = resnet_keys(),
          .presets = {resnet_preset("resnet18", "2,2,2,2", "basic"), resnet_preset("resnet34", "3,4,6,3", "basic"),
                      resnet_preset("resnet50", "3,4,6,3"), resnet_preset("resnet101", "3,4,23,3"),
                      resnet_preset("resnet152", "3,8,36,3"),
                      resnet_preset("resnext50_32x4d", "3,4,6,3", "bottleneck", "32", "4"),
                      resnet_preset("resnext101_32x8d", "3,4,23,3", "bottleneck", "32", "8"),
                      resnet_preset("resnext101_64x4d", "3,4,23,3", "bottleneck", "64", "4"),
                      resnet_preset("wide_resnet50_2", "3,4,6,3", "bottleneck", "1", "128"),
                      resnet_preset("wide_resnet101_2", "3,4,23,3", "bottleneck", "1", "128")},
          .head = {"fc"},
          .stem = "conv1",
          .layers = {{"conv1.", "bn1."}, {"layer{a}."}, {"fc."}},
          .prefers_channels_last = true,
          .sizes_of = resnet_sizes,
          .libraries = {{.name = "torchvision",
                         .arguments = {{.name = "groups", .key = "groups", .otherwise = "1"},
                                       {.name = "width_per_group", .key = "width_per_group", .otherwise = "64"}},
                         .complete = complete_resnet},
                        {.name = "timm",
                         .arguments = {{.name = "cardinality", .key = "groups", .otherwise = "1"},
                                       {.name = "base_width", .key = "width_per_group", .otherwise = "64"},
                                       {.name = "zero_init_last", .key = "zero_init_residual"},
                                       {.name = "global_pool", .unwritten = "\"avg\""},
                                       {.name = "drop_path_rate", .unwritten = kOff}},
                         .settings = {{"stem", "imagenet"}},
                         .complete = complete_resnet}}};
}

}  // namespace lockstep::families
