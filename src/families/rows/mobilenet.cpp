// SPDX-License-Identifier: BSD-3-Clause
#include "families/rows/rows.hpp"

namespace lockstep::families {

namespace {

void refuse_timm(const FamilyRow&, const TrainedModel& model, PublicModel&) {
  refuse(model, "timm", "these parameters, which are those of torchvision");
}

LibraryRow not_in_timm() { return {.name = "timm", .complete = refuse_timm}; }
PublicArgument width_mult() { return {.name = "width_mult", .key = "width_mult", .unwritten = "1"}; }

/// torchvision has a factor on the channels of MobileNets, but not of EfficientNets.
void complete_efficientnet(const FamilyRow&, const TrainedModel& model, PublicModel& result) {
  for (const auto& [argument, value] : result.arguments)
    refuse(model, "torchvision", "model." + argument + " = " + value);
}

}  // namespace

FamilyRow mobilenet_family() {
  return {.name = "mobilenet",
          .help = "Small network for mobile devices, named as in torchvision",
          .keys = mobile_keys(),
          .presets = {{.name = "mobilenet_v2"}, {.name = "mobilenet_v3_small"}, {.name = "mobilenet_v3_large"}},
          .head = {"classifier.3", "classifier.1"},
          .stem = "features.0.0",
          .layers = {{"features.{a}."}, {"classifier."}},
          .prefers_channels_last = true,
          .libraries = {{.name = "torchvision", .arguments = {width_mult()}}, not_in_timm()}};
}

FamilyRow efficientnet_family() {
  FamilyRow family{
      .name = "efficientnet_b0",
      .help = "EfficientNet-B0, named as in torchvision",
      .keys = mobile_keys(),
      .sizes = {{"drop_path", "0.2"}},
      .head = {"classifier.1"},
      .stem = "features.0.0",
      .layers = {{"features.0."}, {"features.{a}.{b}.block."}, {"features.{a}."}, {"classifier."}},
      .prefers_channels_last = true,
      .libraries = {{.name = "torchvision", .arguments = {width_mult()}, .complete = complete_efficientnet},
                    not_in_timm()}};
  family.keys.push_back(drop_path_key());
  return family;
}

}  // namespace lockstep::families
