// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>

#include <string>

// Options of earlier versions in values that choose a row, such as "memory,interval=10". The options of a row state
// their former names and settings as keys do: KeySpec::old_names and KeySpec::replaces, without a section.
namespace lockstep {

/// @param options  those of the row; the options before this one are set
/// @param place    start of the message
/// @throws ConfigError  `key=value` is an option of an earlier version; the message states the new one
void refuse_former_option(const Section& options, const std::string& key, const std::string& value,
                          const std::string& place);

/// An entry of a stored configuration with the options of today: "memory,every=10". Options without a new one are left
/// out.
/// @param key  with the rows as parts
std::string with_new_options(const KeySpec& key, const std::string& entry);

}  // namespace lockstep
