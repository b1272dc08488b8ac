// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/section.hpp>

#include <string>

#include "core/text/text.hpp"

// Values that hold options of their own, such as "cosine,begin=100,final_factor=0.1".
namespace lockstep {

/// Takes over one "key=value" into a section without a name. Inside such a value a list is separated by slashes, as
/// commas separate the options.
/// @param place  start of messages
/// @throws ConfigError  not of this form, an unknown key (with the nearest name), a value that its spec refuses, or a
///                      key that was given before
void set_option(Section& options, const std::string& option, const std::string& place);

}  // namespace lockstep
