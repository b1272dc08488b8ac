// SPDX-License-Identifier: BSD-3-Clause
#include "core/keys/command.hpp"

#include "core/text/text.hpp"

namespace lockstep {

std::string unknown_command(const std::string& word, const std::vector<std::string>& names) {
  const std::string near = nearest_name(word, names);
  return "command '" + word + "' is unknown; choose one of: " + joined(names) +
         (near.empty() ? "" : " (did you mean '" + near + "'?)");
}

}  // namespace lockstep
