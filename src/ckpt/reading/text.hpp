// SPDX-License-Identifier: BSD-3-Clause
// How names and sizes are printed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/text.hpp"
#include "core/text/text_table.hpp"

namespace lockstep::ckpt {

/// Text from a file, safe on a terminal: control characters, characters that change the direction of writing, invalid
/// UTF-8 and the backslash become `\n`, `\x1B`, `\u202E`, `\\`.
std::string escaped(std::string_view text);

/// "999 B", "1.50 MiB".
std::string human_bytes(std::uint64_t bytes);
/// "1.50 MiB (1572864 bytes)".
std::string exact_bytes(std::uint64_t bytes);
/// Six significant digits: "0.125", "1e-09", "nan".
std::string number_text(double value);

}  // namespace lockstep::ckpt
