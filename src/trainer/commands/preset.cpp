// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/commands/preset.hpp"

#include <string>
#include <utility>
#include <vector>

#include "core/text/text.hpp"
#include "data/transforms/presets.hpp"

namespace lockstep::trainer {

void expand_preset(config::Config& config, const std::string& normalise) {
  const Section& data = config.section("data");
  const std::string name = data.has("preset") ? data.text("preset") : "";
  if (name.empty()) return;
  const data::ExpandedPreset preset = data::expand_preset(name, static_cast<int>(data.integer("image_size")));
  const std::vector<std::pair<std::string, std::vector<std::string>>> values = {
      {"data.transform", preset.train},
      {"data.val_transform", preset.val},
      {"data.repeats", {std::to_string(preset.repeats)}},
      {"train.mix", preset.mix},
      {"loss.name", {preset.loss.empty() ? "auto" : preset.loss}},
      {"loss.label_smoothing", {number_text(preset.label_smoothing)}}};
  for (const auto& [key, texts] : values) {
    const Section& section = config.section(config::section_of(key));
    if (!section.is_default(config::key_of(key))) continue;
    for (const std::string& text : texts) {
      const bool is_replaced = text == "normalise" && !normalise.empty();
      config.set(key, is_replaced ? normalise : text, "data.preset = " + name);
    }
  }
}

}  // namespace lockstep::trainer
