// SPDX-License-Identifier: BSD-3-Clause
#include <torch/types.h>

#include <algorithm>
#include <set>

#include "core/text/text.hpp"
#include "engine/resume/optimizer_arrays.hpp"

namespace lockstep::engine {

namespace {

using checkpoints::Archive;
using checkpoints::Array;

/// The differences between groups other than weight decay, which is configuration and may change.
std::set<std::string> without_decays(const std::vector<std::string>& names) {
  std::set<std::string> others;
  for (const std::string& name : names) {
    std::vector<std::string> parts = split_list(name, '+');
    std::erase_if(parts, [](const std::string& part) {
      return part == "all" || part == "rest" || part == "decay" || part == "no_decay" || part.starts_with("decay*") ||
             part.starts_with("weight_decay=");
    });
    others.insert(joined(parts, "+"));
  }
  return others;
}

class OptimizerComparison {
 public:
  OptimizerComparison(const OptimizerContext& place, const Archive& archive, CompatibilityReport& report)
      : place_(place), archive_(archive), report_(report) {}

  bool has_optimizer() const {
    return archive_.has_attribute(place_.group, "type") || archive_.has(place_.group + "/step");
  }

  void add(const std::string& text) {
    report_.add({.kind = MismatchKind::optimizer, .text = text, .remedies = {Remedy::reset_optimizer}});
  }

  void compare_update_counts() {
    const Array& steps = archive_.array(place_.group + "/step");
    const std::string names = stored_names();
    const std::vector<std::int64_t> count = {std::count(names.begin(), names.end(), '\n')};
    if (steps.dtype == DType::int64 && steps.shape == count) return;
    add(title() + " does not have one count of updates per parameter");
  }

  /// @return  whether the rules are the same, so that there is more to compare
  bool compare_rules() {
    const std::string& type = archive_.text(place_.group, "type");
    const std::string& live = place_.optimizer->rule().name;
    if (type != live) add(title() + " is " + type + ", the run's is " + live);
    return type == live;
  }

  void compare_states() {
    const std::vector<std::string>& slots = place_.optimizer->state_names();
    for_each_segment(place_, [&](std::size_t b, std::size_t s) {
      for (std::size_t slot = 0; slot < slots.size(); ++slot) {
        const auto state = place_.optimizer->state_of(b, s, slot);
        if (!state) continue;
        report_.expect_array(MismatchKind::optimizer, state_path(place_, b, s, slot), meta_tensor_of(*state),
                             {Remedy::reset_optimizer});
      }
    });
    if (stored_names() != parameter_names(place_)) add(title() + " contains other parameters, or another order");
    for (const std::string& slot : archive_.groups_in(place_.group + "/state")) {
      const bool is_known = std::find(slots.begin(), slots.end(), slot) != slots.end();
      if (!is_known) add(title() + " keeps " + slot + ", the run's does not");
    }
  }

  void compare_groups() {
    std::vector<std::string> saved;
    for (const std::string& group : archive_.groups_in(place_.group + "/groups")) {
      saved.push_back(archive_.text(place_.group + "/groups/" + group, "name"));
    }
    std::vector<std::string> live;
    for (const optim::ParamGroup& group : place_.optimizer->groups()) live.push_back(group.name);
    if (without_decays(saved) == without_decays(live)) return;
    const std::string owner = place_.name.empty() ? "its" : title() + "'s";
    add(owner + " parameter groups are [" + joined(saved) + "], the run's are [" + joined(live) + "]");
  }

  void compare_numbers() {
    if (!has_numbers(archive_, place_)) add(title() + " lacks some of its numbers");
  }

 private:
  /// The name in messages.
  std::string title() const { return "its optimizer" + (place_.name.empty() ? "" : " " + place_.name); }
  std::string stored_names() const { return checkpoints::text_of(archive_.array(place_.group + "/param_names")); }

  const OptimizerContext& place_;
  const Archive& archive_;
  CompatibilityReport& report_;
};

}  // namespace

void compare_optimizer(const OptimizerContext& place, const Archive& archive, const RestoreOptions& options,
                       CompatibilityReport& report) {
  OptimizerComparison comparison(place, archive, report);
  if (!comparison.has_optimizer()) {
    return comparison.add(place.name.empty() ? "it does not contain the state of the optimizer"
                                             : "it does not contain an optimizer named " + place.name);
  }
  comparison.compare_update_counts();  // which are restored whether or not the parameters fit
  if (options.is_partial || !comparison.compare_rules()) return;
  comparison.compare_states();
  comparison.compare_groups();
  comparison.compare_numbers();
}

}  // namespace lockstep::engine
