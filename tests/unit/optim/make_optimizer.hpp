// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/optim/optimizer.hpp>

#include <utility>

namespace lockstep::optim {

using OptionValues = std::vector<std::pair<std::string, std::string>>;  // key and value of section `optim`

inline Section section_of(const OptionValues& settings) {
  Section optim = Section::with_defaults("optim", optim_keys());
  optim.set("name", "sgd", "command line");
  for (const auto& [key, value] : settings) optim.set(key, value, "command line");
  return optim;
}

/// @param rule  outlives the optimizer
inline Optimizer make_optimizer(const Rule& rule, const OptionValues& settings, FlatParameters& parameters,
                                HalfOptions half = {}) {
  std::vector<ParameterInfo> infos;
  for (const FlatBlock& block : parameters.blocks()) {
    for (const Segment& segment : block.segments) {
      infos.push_back({segment.name, static_cast<std::int64_t>(segment.shape.size())});
    }
  }
  return {rule, build_groups(section_of(settings), rule, infos), parameters, half};
}

inline Optimizer make_optimizer(const OptionValues& settings, FlatParameters& parameters, HalfOptions half = {}) {
  return make_optimizer(find_rule(section_of(settings).text("name")), settings, parameters, half);
}

}  // namespace lockstep::optim
