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

inline Optimizer make_optimizer(const OptionValues& settings, FlatParameters& parameters, HalfOptions half = {}) {
  const Section optim = section_of(settings);
  const Rule& rule = find_rule(optim.text("name"));
  std::vector<ParameterInfo> infos;
  for (const FlatBlock& block : parameters.blocks()) {
    for (const Segment& segment : block.segments) {
      infos.push_back({segment.name, static_cast<std::int64_t>(segment.shape.size())});
    }
  }
  return {rule, build_groups(optim, rule, infos), parameters, half};
}

}  // namespace lockstep::optim
