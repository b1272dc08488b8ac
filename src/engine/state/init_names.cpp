// SPDX-License-Identifier: BSD-3-Clause
#include "engine/state/init_names.hpp"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <set>
#include <string_view>

#include "checkpoints/format/elements.hpp"
#include "core/text/parameter_names.hpp"
#include "engine/state/paths.hpp"
#include "families/names.hpp"

namespace lockstep::engine {

namespace {

using checkpoints::Archive;
using IsKnown = std::function<bool(const std::string&)>;
using Groups = std::map<std::string, StoredTensors>;

/// Keys of trained weights, in the order in which they are looked for.
constexpr std::string_view kTrainedGroups[] = {"/state_dict", "/model", "/model_state_dict", "/network", "/params"};
/// Parts of names that wrappers of modules add: FSDP, FairScale, activation checkpointing, torch.compile, Fabric,
/// Opacus.
constexpr std::string_view kWrapperParts[] = {
    "_fsdp_wrapped_module", "_fpw_module", "_checkpoint_wrapped_module", "_orig_mod", "_forward_module", "_module"};
constexpr std::string_view kModulePart = "module";  // DistributedDataParallel, but also a usual name in models
constexpr std::string_view kModulePrefix = "module.";
constexpr std::string_view kModelPrefix = "model.";

constexpr std::string_view kAverageWords[] = {"ema", "swa", "average", "averaged", "avg"};
constexpr std::string_view kTorchCounter = "n_averaged";  // counter that torch.optim.swa_utils.AveragedModel writes
constexpr std::string_view kMmengineCounter = "steps";    // counter that mmengine.model.BaseAveragedModel writes
constexpr std::string_view kAveragedPrefix = "module.";   // prefix of the weights beside this counter
constexpr std::string_view kBufferPrefix = "ema_";        // mmcv's EMAHook writes it
constexpr std::string_view kStateDict = "/state_dict";

/// A file in which the average is under `state_dict`.
struct SwappedLayout {
  std::string_view trained;  ///< the group with the trained weights
  bool needs_mmengine;       ///< other programs use the key for the average
};

constexpr SwappedLayout kSwappedLayouts[] = {{"/ema_state_dict", true}, {"/current_model_state", false}};

/// Whether the path has one of the words, such as "/model_ema" or "/ema/module".
bool has_average_word(const std::string& group) {
  std::string word;
  for (const char c : group + "/") {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      continue;
    }
    if (std::find(std::begin(kAverageWords), std::end(kAverageWords), word) != std::end(kAverageWords)) return true;
    word.clear();
  }
  return false;
}

/// The name of the counter among the names of a group; "" if there is none.
std::string counter_among(const std::vector<std::string>& names) {
  const auto is_there = [&names](std::string_view name) { return std::ranges::find(names, name) != names.end(); };
  if (is_there(kTorchCounter)) return std::string(kTorchCounter);
  const bool is_mmengine =
      names.size() > 1 && is_there(kMmengineCounter) && std::ranges::all_of(names, [](const std::string& name) {
        return name == kMmengineCounter || name.starts_with(kAveragedPrefix);
      });
  return is_mmengine ? std::string(kMmengineCounter) : "";
}

/// The parameters by the buffers of mmcv's EMAHook, which has one for each weight and bias.
std::map<std::string, std::string> buffers_among(const std::vector<std::string>& names) {
  const std::set<std::string> all(names.begin(), names.end());
  std::map<std::string, std::string> parameters;
  for (const std::string& name : names) {
    std::string buffer = std::string(kBufferPrefix) + name;
    std::replace(buffer.begin(), buffer.end(), '.', '_');
    if (all.contains(buffer)) {
      parameters.emplace(std::move(buffer), name);
    } else if (!name.starts_with(kBufferPrefix) && (name.ends_with(".weight") || name.ends_with(".bias"))) {
      return {};
    }
  }
  const bool has_others = std::ranges::any_of(names, [&parameters](const std::string& name) {
    return name.starts_with(kBufferPrefix) && !parameters.contains(name);
  });
  return has_others ? std::map<std::string, std::string>() : parameters;
}

bool is_by_iterations(const Archive& archive) {
  return archive.has_attribute("/meta", "config") &&
         archive.text("/meta", "config").find("IterBasedRunner") != std::string::npos;
}

/// The groups of a file of another program that contain averaged weights:
///
/// - keys with the word ema, swa or average (timm, DeiT, MAE, torchvision, RT-DETR, BasicSR);
/// - weights beside the counter of torch.optim.swa_utils.AveragedModel, under any key;
/// - `state_dict` of mmengine with EMAHook, which stores the trained weights under `ema_state_dict`, and of Lightning
///   with WeightAveraging, which stores them under `current_model_state`;
/// - one group of mmcv's EMAHook with both: the other weights of `a.b` are the buffer `ema_a_b`. The hook exchanges
///   them before a checkpoint at the end of an epoch, so that the buffers are the trained weights; not so where the
///   stored configuration states an IterBasedRunner.
class WeightLayout {
 public:
  explicit WeightLayout(const Archive& archive);

  /// @param group  path of a group, such as "/state_dict"; "" for the root
  bool is_average(const std::string& group) const { return averages_.contains(group); }
  /// Whether an array counts the updates of averaged weights, so that it does not belong to the model.
  bool is_counter(const std::string& group, const std::string& name) const;
  /// The parameters that have other weights in buffers of their group: names by buffer. Empty = there are none.
  const std::map<std::string, std::string>& buffers_in(const std::string& group) const;
  /// The name of the group that these buffers form with what else is in their group.
  static std::string group_of_buffers(const std::string& group) { return group + "/ema_*"; }

 private:
  std::map<std::string, std::string> counters_;                        // names, by group
  std::map<std::string, std::map<std::string, std::string>> buffers_;  // parameters by buffer, by group
  std::set<std::string> averages_;
};

WeightLayout::WeightLayout(const Archive& archive) {
  std::map<std::string, std::vector<std::string>> groups;
  for (const std::string& path : archive.array_paths()) {
    const auto slash = path.rfind('/');
    groups[path.substr(0, slash)].push_back(checkpoints::decode_name(path.substr(slash + 1)));
  }
  for (const auto& [group, names] : groups) {
    const std::string counter = counter_among(names);
    if (!counter.empty()) counters_.emplace(group, counter);
    if (!counter.empty() || has_average_word(group)) averages_.insert(group);
    auto buffers = buffers_among(names);
    if (buffers.empty()) continue;
    buffers_.emplace(group, std::move(buffers));
    averages_.insert(is_by_iterations(archive) ? group_of_buffers(group) : group);
  }
  for (const SwappedLayout& layout : kSwappedLayouts) {
    const std::string trained(layout.trained);
    const std::string state_dict(kStateDict);
    if (!groups.contains(trained) || !groups.contains(state_dict)) continue;
    const auto counter = counters_.find(trained);
    const bool is_of_mmengine = archive.has_attribute("/meta", "mmengine_version") ||
                                (counter != counters_.end() && counter->second == kMmengineCounter);
    if (layout.needs_mmengine && !is_of_mmengine) continue;
    averages_.erase(trained);
    averages_.insert(state_dict);
  }
}

const std::map<std::string, std::string>& WeightLayout::buffers_in(const std::string& group) const {
  static const std::map<std::string, std::string> none;
  const auto found = buffers_.find(group);
  return found == buffers_.end() ? none : found->second;
}

bool WeightLayout::is_counter(const std::string& group, const std::string& name) const {
  const auto found = counters_.find(group);
  return found != counters_.end() && found->second == name;
}

/// Models have complex numbers as pairs of real ones.
StoredTensor stored_tensor(const checkpoints::Array& array) {
  StoredTensor tensor{&array, array.shape};
  if (checkpoints::is_complex(array.dtype)) tensor.shape.push_back(2);
  return tensor;
}

Groups groups_of(const Archive& archive, const WeightLayout& layout, const Renames& renames) {
  Groups groups;
  const auto add = [&](const std::string& group, const std::string& name, const checkpoints::Array& array) {
    groups[group].emplace(new_name(name, renames), stored_tensor(array));
  };
  for (const std::string& path : archive.array_paths()) {
    const auto slash = path.rfind('/');
    const std::string group = path.substr(0, slash);
    const std::string stored = checkpoints::decode_name(path.substr(slash + 1));
    const checkpoints::Array& array = archive.array(path);
    if (layout.is_counter(group, stored)) continue;
    const auto& buffers = layout.buffers_in(group);
    if (const auto buffer = buffers.find(stored); buffer != buffers.end()) {
      add(WeightLayout::group_of_buffers(group), buffer->second, array);
      continue;
    }
    add(group == kBuffers ? kParameters : group, stored, array);  // checkpoints of Lockstep need both
    const bool has_buffer =
        std::ranges::any_of(buffers, [&stored](const auto& buffer) { return buffer.second == stored; });
    if (!buffers.empty() && !has_buffer) add(WeightLayout::group_of_buffers(group), stored, array);
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

bool is_wrapper(std::string_view part) {
  return std::find(std::begin(kWrapperParts), std::end(kWrapperParts), part) != std::end(kWrapperParts);
}

/// The name without these parts, anywhere but at its end.
template <class IsRemoved>
std::string without_parts(const std::string& name, const IsRemoved& is_removed) {
  std::string shorter;
  std::size_t begin = 0;
  for (std::size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', begin)) {
    const std::string part = name.substr(begin, dot - begin);
    if (!is_removed(part)) shorter += part + ".";
    begin = dot + 1;
  }
  return shorter + name.substr(begin);
}

/// The same tensors if two of them would have one name.
template <class IsRemoved>
StoredTensors without_parts(const StoredTensors& tensors, const IsRemoved& is_removed) {
  StoredTensors shorter;
  for (const auto& [name, tensor] : tensors) shorter.emplace(without_parts(name, is_removed), tensor);
  return shorter.size() == tensors.size() ? shorter : tensors;
}

StoredTensors without_modules(StoredTensors tensors) {
  while (all_have(tensors, kModulePrefix)) tensors = without(tensors, kModulePrefix);
  return tensors;
}

StoredTensors mapped(const StoredTensors& tensors, const families::LibraryRow& library) {
  StoredTensors result;
  for (const auto& [name, tensor] : tensors) {
    const auto own = families::to_own_name(library.names, name);
    StoredTensor with_shape = tensor;
    if (own) with_shape.shape = families::to_own_shape(own->operation, tensor.shape);
    result.emplace(own ? own->name : name, std::move(with_shape));
  }
  return result;
}

std::ptrdiff_t known_in(const StoredTensors& tensors, const IsKnown& is_known) {
  return std::count_if(tensors.begin(), tensors.end(), [&](const auto& item) { return is_known(item.first); });
}

const std::vector<families::LibraryRow>& libraries_of(const NameRules& rules) {
  static const std::vector<families::LibraryRow> none;
  return rules.family == nullptr ? none : rules.family->libraries;
}

/// The names of a group as they are, without prefixes, and mapped.
std::vector<StoredTensors> forms_of(const StoredTensors& tensors, const NameRules& rules) {
  std::vector<StoredTensors> forms = {tensors, without_modules(without_parts(tensors, is_wrapper))};
  if (all_have(forms.back(), kModelPrefix)) forms.push_back(without_modules(without(forms.back(), kModelPrefix)));
  forms.push_back(without_parts(forms.back(), [](std::string_view part) { return part == kModulePart; }));
  const std::size_t count = forms.size();
  const bool is_auto = rules.library == "auto";
  for (const families::LibraryRow& library : libraries_of(rules)) {
    if (library.names.empty() || (!is_auto && library.name != rules.library)) continue;
    for (std::size_t i = 0; i < count; ++i) {
      StoredTensors form = mapped(forms[i], library);
      is_auto ? forms.push_back(std::move(form)) : std::swap(forms[i], form);
    }
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
std::size_t order_of(const std::string& group, const WeightLayout& layout) {
  if (layout.is_average(group)) return 0;
  const auto found = std::find(std::begin(kTrainedGroups), std::end(kTrainedGroups), group);
  return static_cast<std::size_t>(1 + (found - std::begin(kTrainedGroups)));
}

}  // namespace

std::vector<StoredTensors> tensor_forms(const Archive& archive, const NameRules& rules) {
  const WeightLayout layout(archive);
  const Groups groups = groups_of(archive, layout, rules.renames);
  std::vector<std::pair<std::size_t, const StoredTensors*>> ordered;
  for (const auto& [group, tensors] : groups) ordered.emplace_back(order_of(group, layout), &tensors);
  std::stable_sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<StoredTensors> forms;
  for (const auto& [order, tensors] : ordered) {
    for (StoredTensors& form : forms_of(*tensors, rules)) forms.push_back(std::move(form));
  }
  return forms;
}

FoundTensors find_tensors(const Archive& archive, const NameRules& rules, const IsKnown& is_known) {
  const WeightLayout layout(archive);
  FoundTensors best;
  std::ptrdiff_t max = -1;
  std::ptrdiff_t max_of_others = 0;  // same, among the weights that are not wanted
  std::size_t best_order = 0;
  for (const auto& [group, tensors] : groups_of(archive, layout, rules.renames)) {
    const bool is_average = layout.is_average(group);
    StoredTensors form = best_form(tensors, rules, is_known);
    const std::ptrdiff_t known = known_in(form, is_known);
    if (rules.weights != "auto" && is_average != (rules.weights == "average")) {
      max_of_others = std::max(max_of_others, known);
      continue;
    }
    const std::size_t order = order_of(group, layout);
    if (known < max || (known == max && order >= best_order)) continue;
    best = {.tensors = std::move(form), .group = group, .is_average = is_average};
    max = known;
    best_order = order;
  }
  return max <= 0 && max_of_others > 0 ? FoundTensors() : best;
}

}  // namespace lockstep::engine
