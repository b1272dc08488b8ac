// SPDX-License-Identifier: BSD-3-Clause
#include "core/text/message.hpp"

#include <cstdlib>
#include <string_view>

namespace lockstep {

std::string message_of(const std::exception& error) {
  std::string text = error.what();
  const char* const shows = std::getenv("TORCH_SHOW_CPP_STACKTRACES");
  if (shows != nullptr && std::string_view(shows) == "1") return text;
  return text.substr(0, text.find("\nException raised from "));
}

}  // namespace lockstep
