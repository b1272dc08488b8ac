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

/// A record of a CSV file with its line end, as in RFC 4180: a field with a comma, a quote or a line end is quoted.
std::string csv_record(const std::vector<std::string>& fields);

/// Several texts in one field, separated by semicolons; one with a semicolon or a quote is quoted.
std::string csv_list(const std::vector<std::string>& texts);

/// The records of a CSV file, also as spreadsheets save it: with a byte order mark, lines that end with LF, CRLF or CR,
/// or a last line without an end. A last record with an open quote was cut off and is left out.
std::vector<std::vector<std::string>> parse_csv(std::string_view text);

}  // namespace lockstep
