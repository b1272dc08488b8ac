// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// A text file as users write it: without the byte order mark of UTF-8, and with line ends "\n" instead of "\r\n" and
/// "\r".
std::string plain_text(std::string_view bytes);

/// The lines of such a text, trimmed, without empty ones at the end.
std::vector<std::string> plain_lines(std::string_view bytes);

}  // namespace lockstep
