// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/optim/optimizer.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep::optim {

/// The limits of what the options of a rule may become while a run continues. The configuration is checked when it is
/// read; a schedule may come to anything.
class OptionLimits {
 public:
  /// @param rule         outlives this
  /// @param state_names  that are kept: longer lists than the rule's, such as Optimizer::state_names, are fine
  OptionLimits(const Rule& rule, std::vector<std::string> state_names);

  /// Looks at those of a group's options that have one of these names.
  /// @param step  updates before the one that they are for
  /// @throws ConfigError  one is a switch, is out of its key's range, or needs a state that is not kept
  void require(const Options& options, const std::vector<std::string>& names, const std::string& group,
               std::int64_t step) const;

 private:
  std::string fault_in(const Options& options, const std::vector<std::string>& names) const;

  const Rule* rule_;
  std::vector<std::string> state_names_;
  std::map<std::string, KeySpec> keys_;  // option -> its key
};

}  // namespace lockstep::optim
