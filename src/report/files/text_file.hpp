// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>

namespace lockstep::report {

/// The text of a file, or nothing when the file does not exist.
/// @throws ConfigError  it is there and cannot be read
std::optional<std::string> read_text(const std::string& path);

/// The text up to its last line end: what is behind that was torn off by a crash.
std::string whole_lines(const std::string& text);

}  // namespace lockstep::report
