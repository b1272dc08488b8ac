// SPDX-License-Identifier: BSD-3-Clause
#include "plot/page_style.hpp"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <utility>

#include "plot/svg.hpp"

namespace lockstep::plot {

namespace {

// Told apart on a dark ground, in the order of kColors.
constexpr std::array<const char*, kColors.size()> kDarkColors = {"#6cb2f0", "#f2808f", "#63c384", "#bf9bea",
                                                                 "#f5b04c", "#4fd0dd", "#c99676", "#a3abb8"};

// The styles that charts draw texts, axes and grids with, and the page's variable for it.
constexpr std::array<std::pair<const char*, const char*>, 4> kShared = {
    {{"#111827", "--ink"}, {"#374151", "--text"}, {"#6b7280", "--muted"}, {"#e5e7eb", "--line"}}};

std::string rule(const std::string& color, const std::string& variable) {
  return fmt::format("svg[fill=\"{0}\"],svg [fill=\"{0}\"]{{fill:var({1})}}\nsvg [stroke=\"{0}\"]{{stroke:var({1})}}\n",
                     color, variable);
}

template <class Colors>
std::string variables(const Colors& colors) {
  std::string text;
  for (std::size_t i = 0; i < colors.size(); ++i) text += fmt::format("--series-{}:{};", i, colors[i]);
  return ":root{" + text + "}";
}

}  // namespace

std::string page_style() {
  std::string css = variables(kColors) + "\n@media (prefers-color-scheme:dark){" + variables(kDarkColors) + "}\n";
  for (std::size_t i = 0; i < kColors.size(); ++i) css += rule(kColors[i], fmt::format("--series-{}", i));
  for (const auto& [color, variable] : kShared) css += rule(color, variable);
  return css + "svg>rect[fill=\"#ffffff\"]{fill:none}\nsvg text[fill=\"#ffffff\"]{fill:var(--card)}\n";
}

}  // namespace lockstep::plot
