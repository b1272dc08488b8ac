// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>

#include "data/transforms/policies.hpp"

namespace lockstep::data {

namespace {

/// Element i of torch.linspace(first, last, steps) in float32, where products are added without rounding.
double linspace(float first, float last, int steps, int i) {
  if (steps == 1) return first;
  const float step = (last - first) / static_cast<float>(steps - 1);
  return i < steps / 2 ? std::fma(step, static_cast<float>(i), first)
                       : std::fma(-step, static_cast<float>(steps - 1 - i), last);
}

/// How the magnitudes of an operation are made.
enum class Scale { none, linear, width, height, bits };

struct OpScale {
  const char* name;
  Scale scale;
  bool is_signed;
  float narrow_end;  ///< last value of auto_augment and rand_augment; `bits`: number of removed bits
  float wide_end;    ///< last value of trivial_augment_wide
  float first = 0;
};

constexpr std::array<OpScale, 15> kScales = {{
    {"Identity", Scale::none, false, 0, 0},
    {"ShearX", Scale::linear, true, 0.3F, 0.99F},
    {"ShearY", Scale::linear, true, 0.3F, 0.99F},
    {"TranslateX", Scale::width, true, 0, 32},
    {"TranslateY", Scale::height, true, 0, 32},
    {"Rotate", Scale::linear, true, 30, 135},
    {"Brightness", Scale::linear, true, 0.9F, 0.99F},
    {"Color", Scale::linear, true, 0.9F, 0.99F},
    {"Contrast", Scale::linear, true, 0.9F, 0.99F},
    {"Sharpness", Scale::linear, true, 0.9F, 0.99F},
    {"Posterize", Scale::bits, false, 4, 6},
    {"Solarize", Scale::linear, false, 0, 0, 1},
    {"AutoContrast", Scale::none, false, 0, 0},
    {"Equalize", Scale::none, false, 0, 0},
    {"Invert", Scale::none, false, 0, 0},
}};

double scaled_magnitude(const OpScale& op, bool is_wide, int bin, int bins, ImageSize image) {
  const float end = is_wide ? op.wide_end : op.narrow_end;
  const auto of_side = [&](int side) { return is_wide ? end : static_cast<float>(150.0 / 331.0 * side); };
  switch (op.scale) {
    case Scale::linear:
      return linspace(op.first, end, bins, bin);
    case Scale::width:
      return linspace(0, of_side(image.width), bins, bin);
    case Scale::height:
      return linspace(0, of_side(image.height), bins, bin);
    case Scale::bits:
      return 8 - std::nearbyint(static_cast<float>(bin) / (static_cast<float>(bins - 1) / end));
    default:
      return 0;
  }
}

/// auto_augment has no Identity, the others have no Invert.
std::span<const OpScale> scales_of(AugmentSpace space) {
  const std::span<const OpScale> all(kScales);
  return space == AugmentSpace::auto_augment ? all.subspan(1) : all.first(all.size() - 1);
}

// --- timm ---

constexpr double kMaxLevel = 10;

double enhance_increasing(double level, int sign) { return std::max(0.1, 1.0 + sign * (level / kMaxLevel * 0.9)); }
double min_max(double level, double min, double max) {
  return std::clamp(min + (max - min) * (level / kMaxLevel), min, max);
}
double posterize_bits_of(double level) { return static_cast<int>(level / kMaxLevel * 4); }
double solarize_threshold_of(double level) { return std::min(256, static_cast<int>(level / kMaxLevel * 256)); }

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::vector<Magnitudes> magnitudes(AugmentSpace space, int bins, ImageSize image) {
  std::vector<Magnitudes> result;
  for (const OpScale& op : scales_of(space)) {
    Magnitudes row{.name = op.name, .is_signed = op.is_signed, .values = {}};
    for (int bin = 0; bin < bins && op.scale != Scale::none; ++bin) {
      row.values.push_back(scaled_magnitude(op, space == AugmentSpace::trivial_augment_wide, bin, bins, image));
    }
    result.push_back(std::move(row));
  }
  return result;
}

MagnitudeOp magnitude_op(AugmentSpace space, std::size_t op) {
  const OpScale& scale = scales_of(space)[op];
  return {scale.name, scale.is_signed};
}

std::size_t magnitude_op_count(AugmentSpace space) { return scales_of(space).size(); }

double magnitude(AugmentSpace space, std::size_t op, int bin, int bins, ImageSize image) {
  return scaled_magnitude(scales_of(space)[op], space == AugmentSpace::trivial_augment_wide, bin, bins, image);
}

std::optional<double> timm_argument(std::string_view name, double level, int sign, const TimmTranslation& translation) {
  const double part = level / kMaxLevel;
  if (is_one_of(name, {"AutoContrast", "Equalize", "Invert"})) return std::nullopt;
  if (name == "Rotate") return sign * (part * 30.0);
  if (name == "Posterize") return posterize_bits_of(level);
  if (name == "PosterizeIncreasing") return 4 - posterize_bits_of(level);
  if (name == "PosterizeOriginal") return posterize_bits_of(level) + 4;
  if (name == "Solarize") return solarize_threshold_of(level);
  if (name == "SolarizeIncreasing") return 256 - solarize_threshold_of(level);
  if (name == "SolarizeAdd") return std::min(128, static_cast<int>(part * 110));
  if (is_one_of(name, {"Color", "Contrast", "Brightness", "Sharpness"})) return part * 1.8 + 0.1;
  if (is_one_of(name, {"ColorIncreasing", "ContrastIncreasing", "BrightnessIncreasing", "SharpnessIncreasing"})) {
    return enhance_increasing(level, sign);
  }
  if (is_one_of(name, {"ShearX", "ShearY"})) return sign * (part * 0.3);
  if (is_one_of(name, {"TranslateX", "TranslateY"})) return sign * (part * translation.pixels);
  if (is_one_of(name, {"TranslateXRel", "TranslateYRel"})) return sign * (part * translation.fraction);
  if (name == "Desaturate") return min_max(level, 0.5, 1.0);
  if (name == "GaussianBlur") return min_max(level, 0.1, 2.0);
  if (name == "GaussianBlurRand") return min_max(level, 0.0, 1.0);
  throw std::out_of_range("no operation " + std::string(name));
}

}  // namespace lockstep::data
