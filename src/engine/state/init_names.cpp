// SPDX-License-Identifier: BSD-3-Clause
#include "engine/state/init_names.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "checkpoints/interop/name_map.hpp"
#include "engine/state/paths.hpp"

namespace lockstep::engine {

namespace {

using checkpoints::Archive;
using IsKnown = std::function<bool(const std::string&)>;
using Groups = std::map<std::string, StoredTensors>;

/// Keys under which training scripts of Python store averaged weights.
constexpr std::string_view kAverageGroups[] = {"/state_dict_ema", "/model_ema", "/ema_state_dict", "/ema"};
/// Those of trained weights, in the order in which they are looked for.
constexpr std::string_view kTrainedGroups[] = {"/state_dict", "/model", "/model_state_dict", "/network", "/params"};
constexpr std::string_view kCounter = "n_averaged";  // of torch.optim.swa_utils.AveragedModel
constexpr std::string_view kWrappers[] = {"module.", "_orig_mod."};
constexpr std::string_view kModelPrefix = "model.";

bool is_average(const std::string& group) {
  return std::find(std::begin(kAverageGroups), std::end(kAverageGroups), group) != std::end(kAverageGroups);
}

Groups groups_of(const Archive& archive, const Renames& renames) {
  Groups groups;
  for (const std::string& path : archive.array_paths()) {
    const auto slash = path.rfind('/');
    std::string group = path.substr(0, slash);
    if (group == kBuffers) group = kParameters;  // of a checkpoint of ours both are wanted
    const std::string name = new_name(checkpoints::decode_name(path.substr(slash + 1)), renames);
    const checkpoints::Array& array = archive.array(path);
    if (name != kCounter) groups[group].emplace(name, StoredTensor{&array, array.shape});
  }
  return groups;
}

bool all_have(const StoredTensors& tensors, std::string_view prefix) {
  return !tensors.empty() && std::all_of(tensors.begin(), tensors.end(), [prefix](const auto& item) {
    return item.first.size() > prefix.size() && item.first.starts_with(prefix);
  });
}

StoredTensors without(const StoredTensors& tensors, std::string_view prefix) {
  StoredTensors shorter;
  for (const auto& [name, tensor] : tensors) shorter.emplace(name.substr(prefix.size()), tensor);
  return shorter;
}

StoredTensors without_wrappers(StoredTensors tensors) {
  for (bool is_wrapped = true; is_wrapped;) {
    is_wrapped = false;
    for (const std::string_view prefix : kWrappers) {
      if (!all_have(tensors, prefix)) continue;
      tensors = without(tensors, prefix);
      is_wrapped = true;
    }
  }
  return tensors;
}

StoredTensors mapped(const StoredTensors& tensors, const checkpoints::NameMap& map) {
  StoredTensors result;
  for (const auto& [name, tensor] : tensors) {
    const auto own = to_own_name(map, name);
    StoredTensor with_shape = tensor;
    if (own) with_shape.shape = to_own_shape(own->operation, tensor.shape);
    result.emplace(own ? own->name : name, std::move(with_shape));
  }
  return result;
}

std::ptrdiff_t known_in(const StoredTensors& tensors, const IsKnown& is_known) {
  return std::count_if(tensors.begin(), tensors.end(), [&](const auto& item) { return is_known(item.first); });
}

/// The names of a group as they are, without prefixes, and mapped.
std::vector<StoredTensors> forms_of(const StoredTensors& tensors, const NameRules& rules) {
  std::vector<StoredTensors> forms = {tensors, without_wrappers(tensors)};
  if (all_have(forms.back(), kModelPrefix)) forms.push_back(without_wrappers(without(forms.back(), kModelPrefix)));
  const checkpoints::NameMap* const map =
      rules.family == "timm" ? nullptr : checkpoints::find_name_map("torchvision", rules.model);
  const std::size_t count = map == nullptr ? 0 : forms.size();
  if (map != nullptr && rules.family == "torchvision") {
    for (StoredTensors& form : forms) form = mapped(form, *map);
  } else {
    for (std::size_t i = 0; i < count; ++i) forms.push_back(mapped(forms[i], *map));
  }
  return forms;
}

/// The form of the names with most known ones.
StoredTensors best_form(const StoredTensors& tensors, const NameRules& rules, const IsKnown& is_known) {
  const std::vector<StoredTensors> forms = forms_of(tensors, rules);
  return *std::max_element(forms.begin(), forms.end(), [&](const StoredTensors& a, const StoredTensors& b) {
    return known_in(a, is_known) < known_in(b, is_known);
  });
}

/// A group with a lower number comes first among those with as many known names.
std::size_t order_of(const std::string& group) {
  if (is_average(group)) return 0;
  const auto found = std::find(std::begin(kTrainedGroups), std::end(kTrainedGroups), group);
  return static_cast<std::size_t>(1 + (found - std::begin(kTrainedGroups)));
}

}  // namespace

std::vector<StoredTensors> tensor_forms(const Archive& archive, const NameRules& rules) {
  const Groups groups = groups_of(archive, rules.renames);
  std::vector<std::pair<std::size_t, const StoredTensors*>> ordered;
  for (const auto& [group, tensors] : groups) ordered.emplace_back(order_of(group), &tensors);
  std::stable_sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<StoredTensors> forms;
  for (const auto& [order, tensors] : ordered) {
    for (StoredTensors& form : forms_of(*tensors, rules)) forms.push_back(std::move(form));
  }
  return forms;
}

StoredTensors find_tensors(const Archive& archive, const NameRules& rules, const IsKnown& is_known) {
  StoredTensors best;
  std::ptrdiff_t max = -1;
  std::size_t best_order = 0;
  for (const auto& [group, tensors] : groups_of(archive, rules.renames)) {
    if (rules.weights == "trained" && is_average(group)) continue;
    if (rules.weights == "average" && !is_average(group)) continue;
    StoredTensors form = best_form(tensors, rules, is_known);
    const std::ptrdiff_t known = known_in(form, is_known);
    const std::size_t order = order_of(group);
    if (known < max || (known == max && order >= best_order)) continue;
    best = std::move(form);
    max = known;
    best_order = order;
  }
  return best;
}

}  // namespace lockstep::engine
