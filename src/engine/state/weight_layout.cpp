// SPDX-License-Identifier: BSD-3-Clause
#include "engine/state/weight_layout.hpp"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string_view>
#include <vector>

namespace lockstep::engine {

namespace {

using checkpoints::Archive;

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

}  // namespace

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

}  // namespace lockstep::engine
