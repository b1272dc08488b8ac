// SPDX-License-Identifier: BSD-3-Clause
#pragma once

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

/// The patterns of a text such as "conv1/block*".
std::vector<std::string> name_patterns(const std::string& text);

}  // namespace lockstep
