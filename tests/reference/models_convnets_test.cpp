// SPDX-License-Identifier: BSD-3-Clause
#include <regex>
#include <stdexcept>

#include "reference/models_families.hpp"

namespace lockstep::testing::reference {

namespace {

/// "1,2,1" of [1, 2, 1].
std::string comma_list(const std::vector<std::int64_t>& values) {
  std::string text;
  for (const std::int64_t value : values) text += (text.empty() ? "" : ",") + std::to_string(value);
  return text;
}

struct Stages {
  std::vector<std::int64_t> widths;
  std::vector<std::int64_t> depths;
};

/// The stages of torchvision's "[CNBlockConfig(width,next width,depth), ...]".
Stages stages_of(const std::string& what) {
  const std::regex stage(R"(CNBlockConfig\((\d+),\w+,(\d+)\))");
  Stages stages;
  for (std::sregex_iterator i(what.begin(), what.end(), stage); i != std::sregex_iterator(); ++i) {
    stages.widths.push_back(std::stoll((*i)[1]));
    stages.depths.push_back(std::stoll((*i)[2]));
  }
  if (stages.widths.empty()) throw std::runtime_error("no CNBlockConfig(width,next width,depth) in: " + what);
  return stages;
}

}  // namespace

// Our order is that of torchvision, too.
std::vector<StateEntry> torchvision_convnext_state(const std::vector<StateEntry>& ours) {
  const std::vector<families::NameRow>& names = torchvision_names("convnext");
  std::vector<StateEntry> entries;
  for (const StateEntry& entry : ours) {
    const auto mapped = families::to_public_name(names, entry.name);
    if (!mapped) throw std::runtime_error("the map of names has no row for " + entry.name);
    entries.push_back({.name = mapped->name,
                       .shape = families::to_public_shape(mapped->operation, entry.shape),
                       .own_name = entry.name});
  }
  return entries;
}

GoldenModel convnet_model(const Json& one_case) {
  const std::string name = one_case.at("name");
  if (name == "convnext_torchvision") {
    const auto [widths, depths] = stages_of(one_case.at("what"));
    return {.keys = {{"name", "convnext"}, {"depths", comma_list(depths)}, {"widths", comma_list(widths)}},
            .task = task_of(one_case),
            .public_state = torchvision_convnext_state};
  }
  if (name == "convnext_timm") {
    const Json options = options_of(one_case);
    return {.keys = {{"name", "convnext"},
                     {"depths", comma_list(options.at("depths"))},
                     {"widths", comma_list(options.at("dims"))}},
            .task = task_of(one_case)};
  }
  const bool is_mobile = name.starts_with("mobilenet") || name.starts_with("efficientnet");
  if (is_mobile) {
    const Json factor = options_of(one_case).value("width_mult", Json(1));
    return {.keys = {{"name", name}, {"width_mult", factor.dump()}, {"head_dropout", "0"}, {"drop_path", "0"}},
            .task = task_of(one_case)};
  }
  throw std::runtime_error("no model for " + name);
}

GoldenModel unet_model(const Json& one_case) {
  const std::string name = one_case.at("name");
  if (name.starts_with("smp_")) {
    const Json options = options_of(one_case);
    return {.keys = {{"name", name.substr(4)}, {"decoder_widths", comma_list(options.at("decoder_channels"))}},
            .task = task_of(one_case)};
  }
  const bool is_bilinear = name.find("bilinear") != std::string::npos;
  return {.keys = {{"name", "unet"},
                   {"width", options_of(one_case).at("width").dump()},
                   {"up", is_bilinear ? "bilinear" : "transposed"}},
          .task = task_of(one_case)};
}

}  // namespace lockstep::testing::reference
