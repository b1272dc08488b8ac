// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/optim/optim_wrapper.hpp>

#include <map>
#include <string>
#include <vector>

namespace lockstep::testing {

using OptimSettings =
    std::map<std::string, std::string>;  ///< settings of section `optim`, by key; the others have their defaults

/// The optimizer of a wrapper's parameters. Collective.
inline optim::OptimWrapper make_optimizer(optim::FlatParameters& trained, const OptimSettings& settings,
                                          const optim::OptimWrapper::WrapperOptions& options = {}) {
  Section section = Section::with_defaults("optim", optim::optim_keys());
  for (const auto& [key, value] : settings) section.set(key, value, "test");
  const optim::Rule& rule = optim::find_rule(section.text("name"));
  std::vector<optim::ParameterInfo> infos;
  for (const optim::FlatBlock& block : trained.blocks()) {
    for (const optim::Segment& segment : block.segments) {
      infos.push_back({.name = segment.name, .dims = static_cast<std::int64_t>(segment.shape.size())});
    }
  }
  return {optim::Optimizer(rule, optim::build_groups(section, rule, infos), trained), trained, options};
}

}  // namespace lockstep::testing
