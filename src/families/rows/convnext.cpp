// SPDX-License-Identifier: BSD-3-Clause
#include "core/text/text.hpp"
#include "families/rows/rows.hpp"

namespace lockstep::families {

namespace {

constexpr std::size_t kTimmStages = 4;

std::optional<ModelKeys> convnext_sizes(const TensorShapes& shapes) {
  if (find_shape(shapes, "stem.0.weight", 4) == nullptr) return std::nullopt;
  std::vector<std::int64_t> depths;
  std::vector<std::int64_t> widths;
  const auto blocks = [&depths] { return "stages." + std::to_string(depths.size()) + ".blocks."; };
  while (const auto* const scale = find_shape(shapes, blocks() + "0.gamma", 1)) {
    widths.push_back(scale->front());
    depths.push_back(count_of(shapes, blocks(), ".gamma"));
  }
  if (depths.empty()) return std::nullopt;
  return ModelKeys{{"depths", list_text(depths)}, {"widths", list_text(widths)}};
}

/// "[CNBlockConfig(96, 192, 3), ..., CNBlockConfig(768, None, 3)]"
std::string block_settings(const std::vector<std::string>& depths, const std::vector<std::string>& widths) {
  std::vector<std::string> calls;
  for (std::size_t s = 0; s < depths.size(); ++s) {
    const std::string next = s + 1 < widths.size() ? widths[s + 1] : "None";
    calls.push_back("torchvision.models.convnext.CNBlockConfig(" + widths[s] + ", " + next + ", " + depths[s] + ")");
  }
  return "[" + joined(calls) + "]";
}

/// Models of other sizes than those of the presets need arguments.
void complete_convnext(const FamilyRow& family, const TrainedModel& model, PublicModel& result) {
  shape_of(model, result.library, "stages.0.blocks.0.gamma", 1);
  const ModelKeys sizes = *family.sizes_of(model.shapes);
  for (const ModelPreset& preset : family.presets) {
    if (preset.name == family.name || preset.sizes != sizes) continue;
    result.function = preset.name;
    result.arguments.clear();
    return;
  }
  const std::vector<std::string> depths = words_in(*value_of(sizes, "depths"));
  if (result.library == "torchvision") {
    result.function = "ConvNeXt";
    result.arguments = {{"block_setting", block_settings(depths, words_in(*value_of(sizes, "widths")))}};
    return;
  }
  if (depths.size() != kTimmStages) {
    refuse(model, result.library, std::to_string(depths.size()) + " stages; it has 4");
  }
  result.function = "convnext_tiny";
}

ModelPreset convnext_preset(const std::string& size, const std::string& help, const std::string& depths,
                            const std::string& widths) {
  return {.name = "convnext" + size, .help = help, .sizes = {{"depths", depths}, {"widths", widths}}};
}

}  // namespace

FamilyRow convnext_family() {
  return {
      .name = "convnext",
      .help = "ConvNeXt of any size",
      .keys = {keys::integers("model.depths", "",
                              "Number of blocks of each stage (convnext). If empty, that of the model, or 3,3,9,3", 1,
                              1024),
               keys::integers("model.widths", "",
                              "Channels of each stage (convnext). If empty, those of the model, or 96,192,384,768", 1,
                              kMaxSize),
               drop_path_key()},
      .sizes = {{"drop_path", "0"}},
      .presets = {convnext_preset("", "", "3,3,9,3", "96,192,384,768"),
                  convnext_preset("_tiny", "ConvNeXt with 28.6 million parameters", "3,3,9,3", "96,192,384,768"),
                  convnext_preset("_small", "ConvNeXt with 50.2 million parameters", "3,3,27,3", "96,192,384,768"),
                  convnext_preset("_base", "ConvNeXt with 88.6 million parameters", "3,3,27,3", "128,256,512,1024"),
                  convnext_preset("_large", "ConvNeXt with 197.8 million parameters", "3,3,27,3", "192,384,768,1536")},
      .head = {"head.fc"},
      .stem = "stem.0",
      // The convolution between two stages belongs to the first block behind it.
      .layers = {{"stem."}, {"stages.{a}.blocks.{b}.", "stages.{a}.downsample."}, {"head."}},
      .prefers_channels_last = true,
      .sizes_of = convnext_sizes,
      .libraries = {
          {.name = "torchvision",
           .names = {{"stem.0.*", "features.0.0.*"},
                     {"stem.1.*", "features.0.1.*"},
                     {"stages.{s}.blocks.{i}.conv_dw.*", "features.{2s+1}.{i}.block.0.*"},
                     {"stages.{s}.blocks.{i}.norm.*", "features.{2s+1}.{i}.block.2.*"},
                     {"stages.{s}.blocks.{i}.mlp.fc1.*", "features.{2s+1}.{i}.block.3.*"},
                     {"stages.{s}.blocks.{i}.mlp.fc2.*", "features.{2s+1}.{i}.block.5.*"},
                     {"stages.{s}.blocks.{i}.gamma", "features.{2s+1}.{i}.layer_scale", NameOperation::channel_scale},
                     {"stages.{s}.downsample.0.*", "features.{2s}.0.*"},
                     {"stages.{s}.downsample.1.*", "features.{2s}.1.*"},
                     {"head.norm.*", "classifier.0.*"},
                     {"head.fc.*", "classifier.2.*"}},
           .complete = complete_convnext},
          {.name = "timm",
           .arguments = {{.name = "depths", .key = "depths"},
                         {.name = "dims", .key = "widths"},
                         {.name = "drop_path_rate", .key = "drop_path"},
                         {.name = "patch_size", .unwritten = "4"},
                         {.name = "kernel_sizes", .unwritten = "7"},
                         {.name = "conv_mlp", .unwritten = kOff},
                         {.name = "use_grn", .unwritten = kOff},
                         {.name = "global_pool", .unwritten = "\"avg\""},
                         {.name = "head_init_scale"}},
           .complete = complete_convnext}}};
}

}  // namespace lockstep::families
