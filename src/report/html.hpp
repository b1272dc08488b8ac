// SPDX-License-Identifier: BSD-3-Clause
// What pages are put together from.
#pragma once

#include <string>
#include <vector>

namespace lockstep::report {

/// A page with this title, also as its heading.
std::string html_page(const std::string& title, const std::string& body);

std::string html_section(const std::string& heading, const std::string& content);

/// Charts beside each other, as many in a row as the window has room for.
std::string html_charts(const std::vector<std::string>& svgs);

/// @param head  names of the columns; empty: none are shown
/// @param rows  of plain text, escaped here
std::string html_table(const std::vector<std::string>& head, const std::vector<std::vector<std::string>>& rows);

/// What is shown once the reader opens it.
std::string html_details(const std::string& summary, const std::string& content);

}  // namespace lockstep::report
