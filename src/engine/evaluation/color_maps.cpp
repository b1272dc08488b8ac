// SPDX-License-Identifier: BSD-3-Clause
#include "engine/evaluation/color_maps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lockstep::engine {

namespace {

// Lightness L* (CIE 1976) from 14 to 91 in steps of 9.6.
constexpr std::array<MapColor, 9> kSequential = {{{46, 22, 79},
                                                  {46, 46, 125},
                                                  {30, 76, 149},
                                                  {2, 107, 159},
                                                  {1, 137, 162},
                                                  {11, 168, 161},
                                                  {65, 198, 137},
                                                  {151, 221, 92},
                                                  {232, 238, 52}}};

// Lightness L* from 30 to 96 and back in steps of 16.5.
constexpr std::array<MapColor, 9> kDiverging = {{{1, 74, 117},
                                                 {7, 116, 178},
                                                 {105, 157, 209},
                                                 {178, 199, 226},
                                                 {243, 243, 243},
                                                 {228, 188, 183},
                                                 {207, 133, 125},
                                                 {178, 79, 74},
                                                 {132, 34, 36}}};

}  // namespace

ColorMap sequential_map() { return kSequential; }

ColorMap diverging_map() { return kDiverging; }

MapColor color_at(ColorMap map, double share) {
  if (std::isnan(share)) return kGapColor;
  const double place = std::clamp(share, 0.0, 1.0) * static_cast<double>(map.size() - 1);
  const std::size_t below = std::min(static_cast<std::size_t>(place), map.size() - 2);
  const double part = place - static_cast<double>(below);
  MapColor color{};
  for (std::size_t i = 0; i < color.size(); ++i) {
    color[i] = static_cast<std::uint8_t>(std::lround((1 - part) * map[below][i] + part * map[below + 1][i]));
  }
  return color;
}

std::vector<std::string> texts_of(ColorMap map) {
  std::vector<std::string> texts;
  for (const MapColor& color : map) texts.push_back(fmt::format("#{:02x}{:02x}{:02x}", color[0], color[1], color[2]));
  return texts;
}

}  // namespace lockstep::engine
