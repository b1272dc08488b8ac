// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/optim/optimizer.hpp>

#include <map>
#include <span>
#include <string>
#include <vector>

namespace lockstep::optim {

/// A part of the parameters with an optimizer of its own: one text of `optim.part`.
struct PartSettings {
  std::string name;
  std::vector<std::string> patterns = {};  ///< see covers_name; empty = the parameters that no other part matches
  Section optim = {};                      ///< section optim, changed by the options of the part

  /// Key `optim.part`.
  static KeySpec key();
  /// The parts of `optim.part`, in the order in which they are written.
  /// @throws ConfigError  a name is malformed or given twice, or an option is unknown or invalid
  static std::vector<PartSettings> from(const Section& optim);
};

/// Adds a part with the settings of section optim for each of these children of the model that no part trains yet.
void add_children(std::vector<PartSettings>& parts, const Section& optim, const std::vector<std::string>& children,
                  std::span<const ParameterInfo> parameters);

/// The number of the part of each trained parameter, by its first name.
/// @throws ConfigError  a trained parameter belongs to no part or to two parts, or a part has no parameters; cites
///                      `place`
std::map<std::string, std::size_t> assign_parts(const std::vector<PartSettings>& parts,
                                                std::span<const ParameterInfo> parameters, const std::string& place);

}  // namespace lockstep::optim
