// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/tensor.hpp>

#include <string>
#include <string_view>
#include <vector>

// Patterns for the names of parameters and blocks, such as "conv1" or "block*.norm".
namespace lockstep {

/// Whether a pattern matches a complete name. As in file names, `*` stands for any text without a dot.
bool matches_name(std::string_view pattern, std::string_view name);

/// Whether a pattern matches the name, or a block that contains it.
bool covers_name(std::string_view pattern, std::string_view name);
/// The same for any of several patterns.
bool cover_name(const std::vector<std::string>& patterns, std::string_view name);

/// The patterns of a text such as "conv1,block*".
std::vector<std::string> name_patterns(const std::string& text);

// Rules that rename parameters, from texts FROM=TO: a name with the prefix FROM gets the prefix TO. With "re:" before
// FROM, it is a regular expression (ECMAScript), and every match is replaced by TO, in which $1 is a group.

/// @param place  start of messages
/// @throws ConfigError  a text does not have the form FROM=TO, or is not a regular expression
Renames parse_renames(const std::vector<std::string>& texts, const std::string& place);

/// The name after all rules.
std::string new_name(const std::string& name, const Renames& renames);

}  // namespace lockstep
