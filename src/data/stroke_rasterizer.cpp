// SPDX-License-Identifier: BSD-3-Clause
#include "data/stroke_rasterizer.hpp"

#include <lockstep/random/random.hpp>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

namespace lockstep::data {

namespace {

struct StrokePoint {
  float x;
  float y;
};

/// One stroke of the pen. Coordinates run right from 0 to 70 and down from 0 to 100.
struct Stroke {
  /// Straight pieces; a smooth curve through the points; the same, closed.
  enum class StrokeForm { line, curve, loop };
  StrokeForm shape;
  std::vector<StrokePoint> points;
};

using Glyph = std::vector<Stroke>;

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

/// The ways to write a digit.
/// @param digit  in [0, 9]
std::span<const Glyph> glyphs_of(int digit) { return kGlyphs.at(static_cast<std::size_t>(digit)); }

constexpr float kPixelsPerUnit = 0.195F;  // a digit is 100 units high
constexpr float kJitter = 4.0F;           // units a point may move, each way
constexpr float kMaxSlope = 0.28F;        // tangent of the rotation
constexpr float kMaxShear = 0.2F;
constexpr float kMinScale = 0.75F;
constexpr float kMaxScale = 1.1F;
constexpr float kMaxShift = 3.0F;   // pixels
constexpr float kMinRadius = 0.7F;  // radius of the pen, in pixels
constexpr float kMaxRadius = 1.5F;
constexpr float kMinInk = 0.6F;     // 1 is black
constexpr float kMaxNoise = 0.35F;  // difference between the lightest and the darkest grain
constexpr int kPiecesPerCurve = 3;  // straight pieces between two points of a curve

float limit_to_unit(float value) { return std::min(std::max(value, 0.0F), 1.0F); }

class Dice {
 public:
  explicit Dice(const DigitName& name) : sequence_(name.seed, random::Stream::digits, name.split, name.index) {}
  float between(float low, float high) { return low + (high - low) * static_cast<float>(sequence_.uniform()); }
  float around_zero(float max) { return between(-max, max); }
  std::size_t below(std::size_t bound) { return sequence_.below(bound); }
  std::uint64_t bits() { return sequence_.next_bits(); }

 private:
  random::Sequence sequence_;
};

struct Affine {
  float xx, xy, yx, yy, x, y;
  StrokePoint operator()(StrokePoint p) const { return {xx * p.x + xy * p.y + x, yx * p.x + yy * p.y + y}; }
};

// Maps glyph units to pixels: center, scale, shear, rotate, shift.
Affine random_affine(Dice& dice) {
  const float slope = dice.around_zero(kMaxSlope);
  const float cosine = 1 / std::sqrt(1 + slope * slope);
  const float sine = slope * cosine;
  const float shear = dice.around_zero(kMaxShear);
  const float scale_x = kPixelsPerUnit * dice.between(kMinScale, kMaxScale);
  const float scale_y = kPixelsPerUnit * dice.between(kMinScale, kMaxScale);
  Affine map{};
  map.xx = cosine * scale_x;
  map.xy = (cosine * shear - sine) * scale_y;
  map.yx = sine * scale_x;
  map.yy = (sine * shear + cosine) * scale_y;
  constexpr float kMiddle = (kDigitSide - 1) / 2.0F;
  map.x = kMiddle + dice.around_zero(kMaxShift) - map.xx * 35 - map.xy * 50;
  map.y = kMiddle + dice.around_zero(kMaxShift) - map.yx * 35 - map.yy * 50;
  return map;
}

// The point at `t` in [0, 1] between b and c of a smooth curve through a, b, c, d (Catmull and Rom).
StrokePoint on_curve(StrokePoint a, StrokePoint b, StrokePoint c, StrokePoint d, float t) {
  const auto blend = [t](float p, float q, float r, float s) {
    return q + 0.5F * t * (r - p + t * (2 * p - 5 * q + 4 * r - s + t * (3 * (q - r) + s - p)));
  };
  return {blend(a.x, b.x, c.x, d.x), blend(a.y, b.y, c.y, d.y)};
}

// Squared distance of every pixel to the nearest stroke, exact up to `reach` pixels.
class Paper {
 public:
  explicit Paper(float reach) : reach_(reach) { squared_.fill(reach * reach); }

  void line(StrokePoint from, StrokePoint end) {
    const StrokePoint along = {end.x - from.x, end.y - from.y};
    const float scale = 1 / std::max(along.x * along.x + along.y * along.y, 1e-6F);
    const int left = first_pixel(std::min(from.x, end.x));
    const int right = last_pixel(std::max(from.x, end.x));
    const int top = first_pixel(std::min(from.y, end.y));
    const int bottom = last_pixel(std::max(from.y, end.y));
    for (int row = top; row <= bottom; ++row) {
      const float dy = static_cast<float>(row) - from.y;
      for (int column = left; column <= right; ++column) {
        const float dx = static_cast<float>(column) - from.x;
        const float t = limit_to_unit((dx * along.x + dy * along.y) * scale);
        const float off_x = dx - t * along.x;
        const float off_y = dy - t * along.y;
        float& nearest = squared_[static_cast<std::size_t>(row * kDigitSide + column)];
        nearest = std::min(nearest, off_x * off_x + off_y * off_y);
      }
    }
  }

  void stroke(Stroke::StrokeForm shape, std::span<const StrokePoint> points) {
    const auto count = static_cast<int>(points.size());
    const bool closed = shape == Stroke::StrokeForm::loop;
    const auto point = [&](int i) {
      return points[static_cast<std::size_t>(closed ? (i + count) % count : std::clamp(i, 0, count - 1))];
    };
    for (int i = 0; i < count - (closed ? 0 : 1); ++i) {
      StrokePoint from = point(i);
      const int pieces = shape == Stroke::StrokeForm::line ? 1 : kPiecesPerCurve;
      for (int piece = 1; piece < pieces; ++piece) {
        const float t = static_cast<float>(piece) / kPiecesPerCurve;
        const StrokePoint end = on_curve(point(i - 1), point(i), point(i + 1), point(i + 2), t);
        line(from, end);
        from = end;
      }
      line(from, point(i + 1));
    }
  }

  float distance(std::size_t pixel) const { return std::sqrt(squared_[pixel]); }

 private:
  int first_pixel(float low) const { return std::clamp(static_cast<int>(low - reach_), 0, kDigitSide - 1); }
  int last_pixel(float high) const { return std::clamp(static_cast<int>(high + reach_) + 1, 0, kDigitSide - 1); }

  float reach_;
  std::array<float, kDigitPixels> squared_;
};

// Ink where the pen of `radius` passed, fading over one pixel at its edge, and evenly distributed noise everywhere.
DigitImage develop(const Paper& paper, float radius, Dice& dice) {
  const float ink = dice.between(kMinInk, 1);
  const float noise = dice.between(0, kMaxNoise) / 256;
  DigitImage image{};
  std::array<std::uint8_t, kDigitPixels> grains{};
  for (std::size_t pixel = 0; pixel < kDigitPixels; pixel += 8) {
    const std::uint64_t bits = dice.bits();
    for (std::size_t k = 0; k < 8; ++k) grains[pixel + k] = static_cast<std::uint8_t>(bits >> (8 * k));
  }
  for (std::size_t pixel = 0; pixel < kDigitPixels; ++pixel) {
    const float coverage = limit_to_unit(radius + 0.5F - paper.distance(pixel));
    const float value = ink * coverage + noise * (static_cast<float>(grains[pixel]) - 127.5F);
    image[pixel] = static_cast<std::uint8_t>(limit_to_unit(value) * 255 + 0.5F);
  }
  return image;
}

}  // namespace

DigitImage draw_digit(int digit, const DigitName& name) {
  Dice dice(name);
  const std::span<const Glyph> glyphs = glyphs_of(digit);
  const Glyph& glyph = glyphs[dice.below(glyphs.size())];
  const Affine map = random_affine(dice);
  const float radius = dice.between(kMinRadius, kMaxRadius);
  Paper paper(radius + 0.5F);
  std::vector<StrokePoint> points;
  for (const Stroke& stroke : glyph) {
    points.clear();
    for (const StrokePoint point : stroke.points) {
      points.push_back(map({point.x + dice.around_zero(kJitter), point.y + dice.around_zero(kJitter)}));
    }
    paper.stroke(stroke.shape, points);
  }
  return develop(paper, radius, dice);
}

}  // namespace lockstep::data
