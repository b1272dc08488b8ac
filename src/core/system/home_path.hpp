// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace lockstep {

/// A path, or a list of paths with commas, in which "~" or "~/..." is replaced by the home folder of this user and
/// "~NAME/..." by that of another one, as a shell does where it sees the beginning of a word.
/// @throws ConfigError  the home folder is unknown, or a path begins with a variable, as in "$HOME/a"
std::string with_home(const std::string& paths);

}  // namespace lockstep
