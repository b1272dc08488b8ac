// SPDX-License-Identifier: BSD-3-Clause
// Groups are named by what differs from the options of all.
#include <lockstep/core/error.hpp>

#include <algorithm>
#include <set>

#include "core/text/text.hpp"
#include "optim/groups/param_groups.hpp"
#include "optim/rules/options.hpp"

namespace lockstep::optim {

namespace {

/// "lr*0.1" where a value differs from the common one; else "".
std::string difference(const std::string& option, double value, double common, int digits) {
  if (value == common) return "";
  if (option == "weight_decay" && value == 0) return "no_decay";
  if ((option != "lr" && option != "weight_decay") || common == 0) return option + "=" + number_text(value, digits);
  return (option == "lr" ? "lr*" : "decay*") + number_text(value / common, digits);
}

}  // namespace

/// "" where nothing differs.
std::string ParamGroupBuilder::name_of(const Resolved& group, int digits) const {
  if (!group.group.empty() && kinds_.layer_decay == 1) return group.group;
  std::vector<std::string> parts = {group.group};
  for (const char* first : {"lr", "weight_decay"}) {
    parts.push_back(difference(first, group.options.at(first), base_.at(first), digits));
  }
  for (const auto& [option, value] : group.options) {
    if (option != "lr" && option != "weight_decay")
      parts.push_back(difference(option, value, base_.at(option), digits));
  }
  return joined(parts, "+");
}

void ParamGroupBuilder::name_groups(std::vector<ParamGroup>& groups, const std::vector<Resolved>& resolved) const {
  constexpr int kShort = 6;
  constexpr int kExact = 17;
  const bool decays_differ = std::any_of(resolved.begin(), resolved.end(), [this](const Resolved& group) {
    return group.options.at("weight_decay") != base_.at("weight_decay");
  });
  const auto name = [&](const Resolved& group, int digits) {
    if (groups.size() == 1 && group.group.empty()) return std::string("all");
    const std::string differences = name_of(group, digits);
    return !differences.empty() ? differences : std::string(decays_differ ? "decay" : "rest");
  };
  std::multiset<std::string> names;
  for (const Resolved& group : resolved) names.insert(name(group, kShort));
  std::set<std::string> taken;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::string brief = name(resolved[i], kShort);
    groups[i].name = names.count(brief) == 1 ? brief : name(resolved[i], kExact);
    if (taken.insert(groups[i].name).second) continue;
    throw ConfigError(settings_.place + ": two groups have the name '" + groups[i].name + "'; rename one of them");
  }
}

}  // namespace lockstep::optim
