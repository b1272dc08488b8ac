// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/optim/optim_wrapper.hpp>
#include <lockstep/parallel/parameter_store.hpp>

#include <map>
#include <string>
#include <vector>

namespace lockstep::testing {

using OptimSettings = std::map<std::string, std::string>;  ///< of section `optim`, by key; others as by default

/// The optimizer of a store's parameters. Collective.
inline optim::OptimWrapper make_optimizer(parallel::ParameterStore& store, const OptimSettings& settings,
                                          const optim::OptimWrapper::WrapperOptions& options = {}) {
  Section section = Section::with_defaults("optim", optim::optim_keys());
  for (const auto& [key, value] : settings) section.set(key, value, "test");
  const optim::Rule& rule = optim::find_rule(section.text("name"));
  std::vector<optim::ParameterInfo> infos;
  for (std::size_t i = 0; i < store.size(); ++i) {
    infos.push_back({.name = store.parameter(i).name, .dims = store.parameter(i).tensor.dim()});
  }
  return {optim::Optimizer(rule, optim::build_groups(section, rule, infos), store), store, options};
}

}  // namespace lockstep::testing
