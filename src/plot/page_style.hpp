// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace lockstep::plot {

/// CSS rules for charts that stand in the text of a page: they take the page's variables `--ink`, `--text`, `--muted`
/// and `--line` for their texts and lines (`--card` for texts on dark cells), leave the ground to the page, and have
/// lighter colors where the reader prefers a dark one. As an image of its own a chart stays as it is.
std::string page_style();

}  // namespace lockstep::plot
