// SPDX-License-Identifier: BSD-3-Clause
#include "glyphs.hpp"

#include <array>
#include <cstddef>

namespace lockstep::data {

namespace {

constexpr auto kLine = Stroke::Shape::line;
constexpr auto kCurve = Stroke::Shape::curve;
constexpr auto kLoop = Stroke::Shape::loop;

// clang-format off
const std::array<std::vector<Glyph>, 10> kGlyphs = {{
    {  // 0: an oval; one that starts with an overshoot; a slashed one
        {{kLoop, {{3.5F, 0}, {6.2F, 1.6F}, {7, 5}, {6.2F, 8.4F}, {3.5F, 10}, {0.8F, 8.4F}, {0, 5}, {0.8F, 1.6F}}}},
        {{kCurve, {{4.8F, 0.6F}, {2.6F, 0.2F}, {0.6F, 3}, {0.6F, 7}, {2.8F, 10}, {5.6F, 8.4F}, {6.4F, 4.6F}, {4.6F, 0.8F}, {2.8F, 0.6F}}}},
        {{kLoop, {{3.5F, 0}, {6.2F, 1.6F}, {7, 5}, {6.2F, 8.4F}, {3.5F, 10}, {0.8F, 8.4F}, {0, 5}, {0.8F, 1.6F}}},
         {kLine, {{5.6F, 2}, {1.4F, 8}}}},
    },
    {  // 1: a stem; with a flag; with a flag and a foot
        {{kLine, {{3.5F, 0}, {3.5F, 10}}}},
        {{kLine, {{1.4F, 2.4F}, {3.8F, 0}, {3.8F, 10}}}},
        {{kLine, {{1.6F, 2}, {3.5F, 0}, {3.5F, 10}}}, {kLine, {{1.2F, 10}, {5.8F, 10}}}},
    },
    {  // 2: with a flat foot; with a loop at the foot
        {{kCurve, {{0.4F, 2.4F}, {1.6F, 0.4F}, {4, 0}, {6.2F, 1.6F}, {5.8F, 4}, {3, 7}, {0.2F, 10}}}, {kLine, {{0.2F, 10}, {6.8F, 10}}}},
        {{kCurve, {{0.6F, 1.8F}, {3.4F, 0}, {6, 1.8F}, {4.8F, 5.2F}, {2, 8.8F}, {0.6F, 9.6F}, {0.8F, 8.2F}, {3.2F, 9}, {6.8F, 9.8F}}}},
    },
    {  // 3: round; with a flat top
        {{kCurve, {{0.4F, 1.4F}, {2.8F, 0}, {5.8F, 1.2F}, {5.4F, 3.8F}, {2.6F, 4.8F}}},
         {kCurve, {{2.6F, 4.8F}, {5.8F, 5.6F}, {6.6F, 7.8F}, {4, 10}, {0.2F, 8.8F}}}},
        {{kLine, {{0.6F, 0}, {6.2F, 0}, {2.8F, 4}}}, {kCurve, {{2.8F, 4}, {5.8F, 4.8F}, {6.6F, 7.2F}, {4.2F, 9.8F}, {0.2F, 9}}}},
    },
    {  // 4: open; closed; with a stem that ends at the bar's height below
        {{kLine, {{1.4F, 0}, {0.4F, 5.8F}, {7, 5.8F}}}, {kLine, {{5.2F, 1.8F}, {5, 10}}}},
        {{kLine, {{4.8F, 10}, {4.8F, 0}, {0, 6.8F}, {7, 6.8F}}}},
        {{kLine, {{2.6F, 0}, {0.2F, 6.2F}, {6.6F, 6.2F}}}, {kLine, {{4.2F, 3.8F}, {3.8F, 10}}}},
    },
    {  // 5: with corners; in one curve under a flat top
        {{kLine, {{6.2F, 0}, {1.2F, 0}, {0.8F, 4.4F}}}, {kCurve, {{0.8F, 4.4F}, {3.8F, 3.6F}, {6.6F, 5.4F}, {6, 8.6F}, {3.2F, 10}, {0.2F, 8.8F}}}},
        {{kLine, {{1.8F, 0.2F}, {6.6F, 0}}}, {kCurve, {{1.8F, 0.2F}, {1.2F, 3.6F}, {4, 4.4F}, {6, 6.4F}, {4.4F, 9.4F}, {0.4F, 9.6F}}}},
    },
    {  // 6: in one curve; with a straight back
        {{kCurve, {{5.6F, 0.2F}, {2.4F, 2}, {0.4F, 5.8F}, {1, 9}, {3.6F, 10}, {6.2F, 8.4F}, {5.6F, 5.8F}, {3, 5.4F}, {0.6F, 7.2F}}}},
        {{kLine, {{4.2F, 0}, {0.8F, 6.6F}}}, {kLoop, {{3.4F, 4.8F}, {5.8F, 5.6F}, {6.2F, 8}, {3.6F, 10}, {0.8F, 8.8F}, {0.8F, 6.2F}}}},
    },
    {  // 7: plain; with a bar; with a bent stem
        {{kLine, {{0.2F, 0}, {6.8F, 0}, {2.4F, 10}}}},
        {{kLine, {{0.2F, 0}, {6.8F, 0}, {2.6F, 10}}}, {kLine, {{2, 5.2F}, {6.6F, 5.2F}}}},
        {{kLine, {{0.4F, 1.4F}, {0.4F, 0}, {6.6F, 0}}}, {kCurve, {{6.6F, 0}, {4.6F, 3.4F}, {3.4F, 6.6F}, {3.2F, 10}}}},
    },
    {  // 8: in one loop; two rings; a loop that stays open at the top
        {{kLoop, {{3.5F, 4.7F}, {1, 3.2F}, {1.2F, 1}, {3.5F, 0}, {5.8F, 1}, {6, 3.2F}, {3.5F, 4.7F}, {0.6F, 6.6F}, {0.8F, 9}, {3.5F, 10}, {6.2F, 9}, {6.4F, 6.6F}}}},
        {{kLoop, {{3.5F, 0}, {5.6F, 1}, {5.6F, 3.4F}, {3.5F, 4.6F}, {1.4F, 3.4F}, {1.4F, 1}}},
         {kLoop, {{3.5F, 4.6F}, {6.2F, 6}, {6.2F, 8.8F}, {3.5F, 10}, {0.8F, 8.8F}, {0.8F, 6}}}},
        {{kCurve, {{6, 0.8F}, {3, 0}, {0.8F, 1.8F}, {2.6F, 4.4F}, {5.6F, 6.2F}, {6, 8.8F}, {3.2F, 10}, {0.8F, 8.4F}, {2.2F, 5.8F}, {5, 3.6F}, {6.2F, 1.2F}}}},
    },
    {  // 9: with a straight stem; with a bent tail; in one curve
        {{kLoop, {{3.4F, 0}, {5.8F, 1}, {6, 3.6F}, {3.6F, 5.2F}, {1, 4.2F}, {0.8F, 1.4F}}}, {kLine, {{6, 1.4F}, {5.6F, 10}}}},
        {{kCurve, {{6, 2.8F}, {4.8F, 0.4F}, {2.2F, 0.2F}, {0.6F, 2.6F}, {2.2F, 5}, {5, 4.4F}, {6, 2.8F}, {6, 6.4F}, {4.4F, 9.6F}, {1.4F, 9.6F}}}},
        {{kCurve, {{6.2F, 1.2F}, {3.4F, 0}, {0.8F, 1.8F}, {2, 4.8F}, {4.6F, 4.4F}, {6.2F, 1.2F}}}, {kLine, {{6.2F, 1.2F}, {3, 10}}}},
    },
}};
// clang-format on

}  // namespace

std::span<const Glyph> glyphs_of(int digit) { return kGlyphs.at(static_cast<std::size_t>(digit)); }

}  // namespace lockstep::data
