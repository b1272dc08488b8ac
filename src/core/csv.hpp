// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

namespace lockstep {

/// A record of a CSV file with its line end, as in RFC 4180: a field with a comma, a quote or a line end is quoted.
std::string csv_record(const std::vector<std::string>& fields);

/// The records of a CSV file. Lines can end with LF or CRLF; a last record without a line end is left out.
std::vector<std::vector<std::string>> parse_csv(const std::string& text);

}  // namespace lockstep
