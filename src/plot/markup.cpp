// SPDX-License-Identifier: BSD-3-Clause
#include "plot/markup.hpp"

namespace lockstep::plot {

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '&') {
      safe += "&amp;";
    } else if (c == '<') {
      safe += "&lt;";
    } else if (c == '>') {
      safe += "&gt;";
    } else if (c == '"') {
      safe += "&quot;";
    } else {
      safe += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;  // XML knows hardly any control character
    }
  }
  return safe;
}

}  // namespace lockstep::plot
