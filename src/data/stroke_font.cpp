// SPDX-License-Identifier: BSD-3-Clause
#include "data/stroke_font.hpp"

#include <array>
#include <cstddef>

namespace lockstep::data {

namespace {

constexpr auto kLine = Stroke::StrokeForm::line;
constexpr auto kCurve = Stroke::StrokeForm::curve;
constexpr auto kLoop = Stroke::StrokeForm::loop;

// clang-format off
const std::array<std::vector<Glyph>, 10> kGlyphs = {{
    {  // 0
        // an oval
        {{kLoop, {{35, 0}, {62, 16}, {70, 50}, {62, 84}, {35, 100}, {8, 84}, {0, 50}, {8, 16}}}},
        // a shape with an overshoot where the pen starts
        {{kCurve, {{48, 6}, {26, 2}, {6, 30}, {6, 70}, {28, 100}, {56, 84}, {64, 46}, {46, 8}, {28, 6}}}},
        // slashed
        {{kLoop, {{35, 0}, {62, 16}, {70, 50}, {62, 84}, {35, 100}, {8, 84}, {0, 50}, {8, 16}}},
         {kLine, {{56, 20}, {14, 80}}}},
    },
    {  // 1
        // a stem
        {{kLine, {{35, 0}, {35, 100}}}},
        // a shape with a flag
        {{kLine, {{14, 24}, {38, 0}, {38, 100}}}},
        // a shape with a flag and a foot
        {{kLine, {{16, 20}, {35, 0}, {35, 100}}},
         {kLine, {{12, 100}, {58, 100}}}},
    },
    {  // 2
        // flat foot
        {{kCurve, {{4, 24}, {16, 4}, {40, 0}, {62, 16}, {58, 40}, {30, 70}, {2, 100}}},
         {kLine, {{2, 100}, {68, 100}}}},
        // looped foot
        {{kCurve, {{6, 18}, {34, 0}, {60, 18}, {48, 52}, {20, 88}, {6, 96}, {8, 82}, {32, 90}, {68, 98}}}},
    },
    {  // 3
        // round
        {{kCurve, {{4, 14}, {28, 0}, {58, 12}, {54, 38}, {26, 48}}},
         {kCurve, {{26, 48}, {58, 56}, {66, 78}, {40, 100}, {2, 88}}}},
        // flat top
        {{kLine, {{6, 0}, {62, 0}, {28, 40}}},
         {kCurve, {{28, 40}, {58, 48}, {66, 72}, {42, 98}, {2, 90}}}},
    },
    {  // 4
        // open
        {{kLine, {{14, 0}, {4, 58}, {70, 58}}},
         {kLine, {{52, 18}, {50, 100}}}},
        // closed
        {{kLine, {{48, 100}, {48, 0}, {0, 68}, {70, 68}}}},
        // open, with a short stem
        {{kLine, {{26, 0}, {2, 62}, {66, 62}}},
         {kLine, {{42, 38}, {38, 100}}}},
    },
    {  // 5
        // a shape with corners
        {{kLine, {{62, 0}, {12, 0}, {8, 44}}},
         {kCurve, {{8, 44}, {38, 36}, {66, 54}, {60, 86}, {32, 100}, {2, 88}}}},
        // round, under a flat top
        {{kLine, {{18, 2}, {66, 0}}},
         {kCurve, {{18, 2}, {12, 36}, {40, 44}, {60, 64}, {44, 94}, {4, 96}}}},
    },
    {  // 6
        // a shape in one curve
        {{kCurve, {{56, 2}, {24, 20}, {4, 58}, {10, 90}, {36, 100}, {62, 84}, {56, 58}, {30, 54}, {6, 72}}}},
        // straight back, closed ring
        {{kLine, {{42, 0}, {8, 66}}},
         {kLoop, {{34, 48}, {58, 56}, {62, 80}, {36, 100}, {8, 88}, {8, 62}}}},
    },
    {  // 7
        // plain
        {{kLine, {{2, 0}, {68, 0}, {24, 100}}}},
        // a shape with a bar
        {{kLine, {{2, 0}, {68, 0}, {26, 100}}},
         {kLine, {{20, 52}, {66, 52}}}},
        // a shape with a serif and a bent stem
        {{kLine, {{4, 14}, {4, 0}, {66, 0}}},
         {kCurve, {{66, 0}, {46, 34}, {34, 66}, {32, 100}}}},
    },
    {  // 8
        // a shape in one loop
        {{kLoop, {{35, 47}, {10, 32}, {12, 10}, {35, 0}, {58, 10}, {60, 32}, {35, 47},
                  {6, 66}, {8, 90}, {35, 100}, {62, 90}, {64, 66}}}},
        // two rings
        {{kLoop, {{35, 0}, {56, 10}, {56, 34}, {35, 46}, {14, 34}, {14, 10}}},
         {kLoop, {{35, 46}, {62, 60}, {62, 88}, {35, 100}, {8, 88}, {8, 60}}}},
        // drawn as an S and back, open at the top
        {{kCurve, {{60, 8}, {30, 0}, {8, 18}, {26, 44}, {56, 62}, {60, 88},
                   {32, 100}, {8, 84}, {22, 58}, {50, 36}, {62, 12}}}},
    },
    {  // 9
        // closed ring, straight stem
        {{kLoop, {{34, 0}, {58, 10}, {60, 36}, {36, 52}, {10, 42}, {8, 14}}},
         {kLine, {{60, 14}, {56, 100}}}},
        // a shape in one curve, with a bent tail
        {{kCurve, {{60, 28}, {48, 4}, {22, 2}, {6, 26}, {22, 50}, {50, 44}, {60, 28}, {60, 64}, {44, 96}, {14, 96}}}},
        // slanted stem
        {{kCurve, {{62, 12}, {34, 0}, {8, 18}, {20, 48}, {46, 44}, {62, 12}}},
         {kLine, {{62, 12}, {30, 100}}}},
    },
}};
// clang-format on

}  // namespace

std::span<const Glyph> glyphs_of(int digit) { return kGlyphs.at(static_cast<std::size_t>(digit)); }

}  // namespace lockstep::data
