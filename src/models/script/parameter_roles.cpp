// SPDX-License-Identifier: BSD-3-Clause
#include "models/script/parameter_roles.hpp"

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/normalization.h>

#include <algorithm>
#include <map>

#include "families/names.hpp"
#include "models/script/script_layers.hpp"

namespace lockstep::models {

namespace {

namespace nn = torch::nn;

template <class... Layers>
bool is_any_of(const nn::Module& module) {
  return (... || (module.as<Layers>() != nullptr));
}

LayerKind kind_of(const nn::Module& module) {
  if (const auto* block = dynamic_cast<const Block*>(&module)) return block->kind();
  if (const auto* part = dynamic_cast<const ScriptPart*>(&module)) return part->kind();
  const bool is_norm =
      is_any_of<nn::BatchNorm1dImpl, nn::BatchNorm2dImpl, nn::BatchNorm3dImpl, nn::InstanceNorm1dImpl,
                nn::InstanceNorm2dImpl, nn::InstanceNorm3dImpl, nn::GroupNormImpl, nn::LayerNormImpl>(module);
  if (is_norm) return LayerKind::norm;
  const auto* const convolution = module.as<nn::Conv2dImpl>();
  const bool is_depthwise =
      convolution != nullptr && convolution->options.in_channels() == convolution->options.groups();
  return is_depthwise ? LayerKind::depthwise : LayerKind::other;
}

/// "a.b" of "a.b.weight", "" of "weight".
std::string parent_of(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

/// "block3." of "block3.norm.weight", "blocks.3." of "blocks.3.weight", else "".
std::string numbered_beginning(const std::string& name) {
  const std::size_t first = name.find('.');
  if (first == std::string::npos || first == 0) return "";
  if (is_digit(name[first - 1])) return name.substr(0, first + 1);
  const std::size_t second = name.find('.', first + 1);
  const bool is_number = second != std::string::npos && second > first + 1 &&
                         std::all_of(name.begin() + static_cast<std::ptrdiff_t>(first) + 1,
                                     name.begin() + static_cast<std::ptrdiff_t>(second), is_digit);
  return is_number ? name.substr(0, second + 1) : "";
}

std::int64_t layers_after(const std::vector<std::vector<std::string>>& layers, const std::string& name) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const bool is_here = std::any_of(layers[i].begin(), layers[i].end(),
                                     [&name](const std::string& beginning) { return name.starts_with(beginning); });
    if (is_here) return static_cast<std::int64_t>(layers.size() - 1 - i);
  }
  return 0;
}

/// Each number is a layer, in the order of registration.
std::vector<std::vector<std::string>> numbered_layers(const std::vector<std::string>& names) {
  std::vector<std::vector<std::string>> layers;
  std::vector<std::string> unnumbered;  // since the last layer
  for (const std::string& name : names) {
    const std::string beginning = numbered_beginning(name);
    if (beginning.empty()) {
      unnumbered.push_back(name);
    } else if (layers.empty() || layers.back().front() != beginning) {
      if (layers.empty() && !unnumbered.empty()) layers.push_back(std::move(unnumbered));
      if (!layers.empty()) layers.back().insert(layers.back().end(), unnumbered.begin(), unnumbered.end());
      unnumbered.clear();
      layers.push_back({beginning});
    }
  }
  if (!unnumbered.empty()) layers.push_back(std::move(unnumbered));
  return layers;
}

}  // namespace

std::vector<std::vector<std::string>> layers_of(const Model& model) {
  std::vector<std::string> names;
  for (const auto& item : model.named_parameters()) names.push_back(item.key());
  const auto& rows = model.family().layers;
  return rows.empty() ? numbered_layers(names) : families::layers_in(rows, names);
}

std::vector<ParameterRole> parameter_roles(const Model& model) {
  std::map<std::string, LayerKind> kinds = {{"", model.kind()}};
  for (const auto& item : model.named_modules({}, /*include_self=*/false)) kinds[item.key()] = kind_of(*item.value());
  const std::vector<std::vector<std::string>> layers = layers_of(model);
  const std::vector<std::string>& undecayed = model.family().undecayed;
  std::vector<ParameterRole> roles;
  for (const auto& item : model.named_parameters()) {
    const std::string layer = parent_of(item.key());
    ParameterRole role{.name = item.key(), .tensor = item.value(), .kind = kinds[layer]};
    role.is_offset = !layer.empty() && kinds[parent_of(layer)] == LayerKind::deformable;
    role.layers_after = layers_after(layers, role.name);
    role.is_undecayed = std::find(undecayed.begin(), undecayed.end(), role.name) != undecayed.end();
    const auto first = std::find_if(roles.begin(), roles.end(),
                                    [&role](const ParameterRole& other) { return other.tensor.is_same(role.tensor); });
    if (first != roles.end()) role.same_as = first->same_as.empty() ? first->name : first->same_as;
    roles.push_back(std::move(role));
  }
  return roles;
}

}  // namespace lockstep::models
