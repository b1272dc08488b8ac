// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/tensor.hpp>

#include <string>
#include <vector>

namespace lockstep {

// Rules that rename parameters, from texts FROM=TO: a name with the prefix FROM gets the prefix TO. With "re:" before
// FROM, it is a regular expression (ECMAScript), and every match is replaced by TO, in which $1 is a group.

/// @param place  start of messages
/// @throws ConfigError  a text does not have the form FROM=TO, or is not a regular expression
Renames parse_renames(const std::vector<std::string>& texts, const std::string& place);

/// The name after all rules.
std::string new_name(const std::string& name, const Renames& renames);

}  // namespace lockstep
