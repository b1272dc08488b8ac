// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace lockstep::plot {

/// Text as it may stand in XML and HTML, in attributes too. Control characters become blanks, the end of a line too.
std::string escaped(const std::string& text);

}  // namespace lockstep::plot
