// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace lockstep {

/// A path, a list of paths with commas, or an entry with options, such as "NAME,path=~/a", in which "~" or "~/..." is
/// replaced by the home folder of this user and "~NAME/..." by that of another one, as a shell does where it sees the
/// beginning of a word.
/// @param place  start of messages, such as "a.ini:3: data.path: "
/// @throws ConfigError  the home folder is unknown, or a path has a variable, as in "$HOME/a" and "/a/${USER}"
std::string with_home(const std::string& paths, const std::string& place = "");

}  // namespace lockstep
