// SPDX-License-Identifier: BSD-3-Clause
// The policies of AutoAugment. Source: Cubuk et al., "AutoAugment: learning augmentation policies from data", CVPR
// 2019, with the levels of torchvision and timm. The magnitudes of operations, and timm's configurations of them.
#include "data/transforms/policies.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <stdexcept>

#include "core/text/parse_value.hpp"
#include "core/text/text.hpp"

namespace lockstep::data {

namespace {

using Policy = std::vector<PolicyPair>;

const Policy& cifar10_policy() {
  static const Policy policy = {
      {{"Invert", 0.1, -1}, {"Contrast", 0.2, 6}},         {{"Rotate", 0.7, 2}, {"TranslateX", 0.3, 9}},
      {{"Sharpness", 0.8, 1}, {"Sharpness", 0.9, 3}},      {{"ShearY", 0.5, 8}, {"TranslateY", 0.7, 9}},
      {{"AutoContrast", 0.5, -1}, {"Equalize", 0.9, -1}},  {{"ShearY", 0.2, 7}, {"Posterize", 0.3, 7}},
      {{"Color", 0.4, 3}, {"Brightness", 0.6, 7}},         {{"Sharpness", 0.3, 9}, {"Brightness", 0.7, 9}},
      {{"Equalize", 0.6, -1}, {"Equalize", 0.5, -1}},      {{"Contrast", 0.6, 7}, {"Sharpness", 0.6, 5}},
      {{"Color", 0.7, 7}, {"TranslateX", 0.5, 8}},         {{"Equalize", 0.3, -1}, {"AutoContrast", 0.4, -1}},
      {{"TranslateY", 0.4, 3}, {"Sharpness", 0.2, 6}},     {{"Brightness", 0.9, 6}, {"Color", 0.2, 8}},
      {{"Solarize", 0.5, 2}, {"Invert", 0, -1}},           {{"Equalize", 0.2, -1}, {"AutoContrast", 0.6, -1}},
      {{"Equalize", 0.2, -1}, {"Equalize", 0.6, -1}},      {{"Color", 0.9, 9}, {"Equalize", 0.6, -1}},
      {{"AutoContrast", 0.8, -1}, {"Solarize", 0.2, 8}},   {{"Brightness", 0.1, 3}, {"Color", 0.7, 0}},
      {{"Solarize", 0.4, 5}, {"AutoContrast", 0.9, -1}},   {{"TranslateY", 0.9, 9}, {"TranslateY", 0.7, 9}},
      {{"AutoContrast", 0.9, -1}, {"Solarize", 0.8, 3}},   {{"Equalize", 0.8, -1}, {"Invert", 0.1, -1}},
      {{"TranslateY", 0.7, 9}, {"AutoContrast", 0.9, -1}},
  };
  return policy;
}

const Policy& svhn_policy() {
  static const Policy policy = {
      {{"ShearX", 0.9, 4}, {"Invert", 0.2, -1}},        {{"ShearY", 0.9, 8}, {"Invert", 0.7, -1}},
      {{"Equalize", 0.6, -1}, {"Solarize", 0.6, 6}},    {{"Invert", 0.9, -1}, {"Equalize", 0.6, -1}},
      {{"Equalize", 0.6, -1}, {"Rotate", 0.9, 3}},      {{"ShearX", 0.9, 4}, {"AutoContrast", 0.8, -1}},
      {{"ShearY", 0.9, 8}, {"Invert", 0.4, -1}},        {{"ShearY", 0.9, 5}, {"Solarize", 0.2, 6}},
      {{"Invert", 0.9, -1}, {"AutoContrast", 0.8, -1}}, {{"Equalize", 0.6, -1}, {"Rotate", 0.9, 3}},
      {{"ShearX", 0.9, 4}, {"Solarize", 0.3, 3}},       {{"ShearY", 0.8, 8}, {"Invert", 0.7, -1}},
      {{"Equalize", 0.9, -1}, {"TranslateY", 0.6, 6}},  {{"Invert", 0.9, -1}, {"Equalize", 0.6, -1}},
      {{"Contrast", 0.3, 3}, {"Rotate", 0.8, 4}},       {{"Invert", 0.8, -1}, {"TranslateY", 0, 2}},
      {{"ShearY", 0.7, 6}, {"Solarize", 0.4, 8}},       {{"Invert", 0.6, -1}, {"Rotate", 0.8, 4}},
      {{"ShearY", 0.3, 7}, {"TranslateX", 0.9, 3}},     {{"ShearX", 0.1, 6}, {"Invert", 0.6, -1}},
      {{"Solarize", 0.7, 2}, {"TranslateY", 0.6, 7}},   {{"ShearY", 0.8, 4}, {"Invert", 0.8, -1}},
      {{"ShearX", 0.7, 9}, {"TranslateY", 0.8, 3}},     {{"ShearY", 0.8, 5}, {"AutoContrast", 0.7, -1}},
      {{"ShearX", 0.7, 2}, {"Invert", 0.1, -1}},
  };
  return policy;
}

const Policy& timm_v0_policy() {
  static const Policy policy = {
      {{"Equalize", 0.8, 1}, {"ShearY", 0.8, 4}},
      {{"Color", 0.4, 9}, {"Equalize", 0.6, 3}},
      {{"Color", 0.4, 1}, {"Rotate", 0.6, 8}},
      {{"Solarize", 0.8, 3}, {"Equalize", 0.4, 7}},
      {{"Solarize", 0.4, 2}, {"Solarize", 0.6, 2}},
      {{"Color", 0.2, 0}, {"Equalize", 0.8, 8}},
      {{"Equalize", 0.4, 8}, {"SolarizeAdd", 0.8, 3}},
      {{"ShearX", 0.2, 9}, {"Rotate", 0.6, 8}},
      {{"Color", 0.6, 1}, {"Equalize", 1, 2}},
      {{"Invert", 0.4, 9}, {"Rotate", 0.6, 0}},
      {{"Equalize", 1, 9}, {"ShearY", 0.6, 3}},
      {{"Color", 0.4, 7}, {"Equalize", 0.6, 0}},
      {{"Posterize", 0.4, 6}, {"AutoContrast", 0.4, 7}},
      {{"Solarize", 0.6, 8}, {"Color", 0.6, 9}},
      {{"Solarize", 0.2, 4}, {"Rotate", 0.8, 9}},
      {{"Rotate", 1, 7}, {"TranslateYRel", 0.8, 9}},
      {{"ShearX", 0, 0}, {"Solarize", 0.8, 4}},
      {{"ShearY", 0.8, 0}, {"Color", 0.6, 4}},
      {{"Color", 1, 0}, {"Rotate", 0.6, 2}},
      {{"Equalize", 0.8, 4}, {"Equalize", 0, 8}},
      {{"Equalize", 1, 4}, {"AutoContrast", 0.6, 2}},
      {{"ShearY", 0.4, 7}, {"SolarizeAdd", 0.6, 7}},
      {{"Posterize", 0.8, 2}, {"Solarize", 0.6, 10}},
      {{"Solarize", 0.6, 8}, {"Equalize", 0.6, 1}},
      {{"Color", 0.8, 6}, {"Rotate", 0.4, 5}},
  };
  return policy;
}

const Policy& timm_original_policy() {
  static const Policy policy = {
      {{"PosterizeOriginal", 0.4, 8}, {"Rotate", 0.6, 9}},
      {{"Solarize", 0.6, 5}, {"AutoContrast", 0.6, 5}},
      {{"Equalize", 0.8, 8}, {"Equalize", 0.6, 3}},
      {{"PosterizeOriginal", 0.6, 7}, {"PosterizeOriginal", 0.6, 6}},
      {{"Equalize", 0.4, 7}, {"Solarize", 0.2, 4}},
      {{"Equalize", 0.4, 4}, {"Rotate", 0.8, 8}},
      {{"Solarize", 0.6, 3}, {"Equalize", 0.6, 7}},
      {{"PosterizeOriginal", 0.8, 5}, {"Equalize", 1, 2}},
      {{"Rotate", 0.2, 3}, {"Solarize", 0.6, 8}},
      {{"Equalize", 0.6, 8}, {"PosterizeOriginal", 0.4, 6}},
      {{"Rotate", 0.8, 8}, {"Color", 0.4, 0}},
      {{"Rotate", 0.4, 9}, {"Equalize", 0.6, 2}},
      {{"Equalize", 0, 7}, {"Equalize", 0.8, 8}},
      {{"Invert", 0.6, 4}, {"Equalize", 1, 8}},
      {{"Color", 0.6, 4}, {"Contrast", 1, 8}},
      {{"Rotate", 0.8, 8}, {"Color", 1, 2}},
      {{"Color", 0.8, 8}, {"Solarize", 0.8, 7}},
      {{"Sharpness", 0.4, 7}, {"Invert", 0.6, 8}},
      {{"ShearX", 0.6, 5}, {"Equalize", 1, 9}},
      {{"Color", 0.4, 0}, {"Equalize", 0.6, 3}},
      {{"Equalize", 0.4, 7}, {"Solarize", 0.2, 4}},
      {{"Solarize", 0.6, 5}, {"AutoContrast", 0.6, 5}},
      {{"Invert", 0.6, 4}, {"Equalize", 1, 8}},
      {{"Color", 0.6, 4}, {"Contrast", 1, 8}},
      {{"Equalize", 0.8, 8}, {"Equalize", 0.6, 3}},
  };
  return policy;
}

const Policy& timm_3a_policy() {
  static const Policy policy = {
      {{"Solarize", 1, 5}},
      {{"Desaturate", 1, 10}},
      {{"GaussianBlurRand", 1, 10}},
  };
  return policy;
}

/// The same policy with another operation.
Policy with_op(Policy policy, std::string_view from, const char* target) {
  for (PolicyPair& pair : policy) {
    for (PolicyStep& step : pair) {
      if (step.op == from) step.op = target;
    }
  }
  return policy;
}

/// torchvision has no levels for operations without a magnitude.
Policy without_unused_levels(Policy policy) {
  for (PolicyPair& pair : policy) {
    for (PolicyStep& step : pair) {
      const std::string_view op = step.op;
      if (op == "AutoContrast" || op == "Equalize" || op == "Invert") step.level = -1;
    }
  }
  return policy;
}

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
  if (op.scale == Scale::none) return 0;
  if (op.scale == Scale::bits) {
    return 8 - std::nearbyint(static_cast<float>(bin) / (static_cast<float>(bins - 1) / end));
  }
  if (op.scale == Scale::linear) return linspace(op.first, end, bins, bin);
  return linspace(0, of_side(op.scale == Scale::width ? image.width : image.height), bins, bin);
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

using Names = std::vector<std::string>;

const Names kTimmOps = {"AutoContrast", "Equalize",    "Invert", "Rotate",        "Posterize",
                        "Solarize",     "SolarizeAdd", "Color",  "Contrast",      "Brightness",
                        "Sharpness",    "ShearX",      "ShearY", "TranslateXRel", "TranslateYRel"};
/// The same operations, of which some become stronger with the level in both directions ("inc1").
Names increasing_ops() {
  Names names = kTimmOps;
  for (std::string& name : names) {
    const bool increases = name == "Posterize" || name == "Solarize" || name == "Color" || name == "Contrast" ||
                           name == "Brightness" || name == "Sharpness";
    if (increases) name += "Increasing";
  }
  return names;
}

/// A set of operations with their weights, which are divided by their sum.
struct WeightedOps {
  Names names;
  std::vector<double> weights;
};

const WeightedOps kTimmWeighted = {
    {"Rotate", "ShearX", "ShearY", "TranslateXRel", "TranslateYRel", "ColorIncreasing", "SharpnessIncreasing",
     "AutoContrast", "SolarizeIncreasing", "SolarizeAdd", "ContrastIncreasing", "BrightnessIncreasing", "Equalize",
     "PosterizeIncreasing", "Invert"},
    {0.3, 0.2, 0.2, 0.1, 0.1, 0.025, 0.025, 0.025, 0.005, 0.005, 0.005, 0.005, 0.005, 0.005, 0.005}};
const WeightedOps kTimm3aWeighted = {{"SolarizeIncreasing", "Desaturate", "GaussianBlur", "Rotate", "ShearX", "ShearY",
                                      "PosterizeIncreasing", "AutoContrast", "ColorIncreasing", "SharpnessIncreasing",
                                      "ContrastIncreasing", "BrightnessIncreasing", "Equalize", "Invert"},
                                     {6, 6, 6, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1}};

void use_weighted(const WeightedOps& ops, AugmentConfig& config) {
  const double sum = std::accumulate(ops.weights.begin(), ops.weights.end(), 0.0);
  config.ops = ops.names;
  config.weights = ops.weights;
  for (double& weight : config.weights) weight /= sum;
}

double timm_number(const std::string& part, std::size_t name_size) {
  const std::optional<double> value = parse_real(part.substr(name_size));
  if (value && *value >= 0) return *value;
  throw ConfigError("'" + part + "' does not end in a number; use a text such as rand-m9-mstd0.5-inc1");
}

/// Applies one part of the text, such as "m9".
void apply_part_of_config(const std::string& part, AugmentConfig& config, bool& is_increasing) {
  const std::size_t digits = part.find_first_of("0123456789");
  const std::string name = part.starts_with('t') ? "t" : part.substr(0, digits);
  if (name == "t") {
    const std::string set = part.substr(1);
    if (set == "weights") return use_weighted(kTimmWeighted, config);
    if (set == "3aw") return use_weighted(kTimm3aWeighted, config);
    if (set != "3a") throw ConfigError("'" + part + "' is not a set of operations; use tweights, t3a or t3aw");
    config.ops = {"SolarizeIncreasing", "Desaturate", "GaussianBlur"};
    return;
  }
  const double value = timm_number(part, name.size());
  if (name == "m") {
    config.magnitude = value;
  } else if (name == "n") {
    if (value < 1 || value > kMaxAugmentOps) {
      throw ConfigError("'" + part + "' is not in [1, " + std::to_string(kMaxAugmentOps) + "] operations");
    }
    config.layers = static_cast<int>(value);
  } else if (name == "p") {
    if (value > 1) throw ConfigError("'" + part + "' is not a probability in [0, 1]");
    config.probability = value;
  } else if (name == "mstd") {
    config.magnitude_std = value > 100 ? std::numeric_limits<double>::infinity() : value;
  } else if (name == "mmax") {
    config.magnitude_max = value;
  } else if (name == "inc") {
    is_increasing = value != 0;
  } else {
    throw ConfigError("'" + part + "' is unknown; the parts are m, n, p, mstd, mmax, inc and t");
  }
}

}  // namespace

const std::vector<PolicyPair>& torchvision_policy(const std::string& name) {
  static const Policy imagenet =
      without_unused_levels(with_op(timm_original_policy(), "PosterizeOriginal", "Posterize"));
  if (name == "imagenet") return imagenet;
  if (name == "cifar10") return cifar10_policy();
  if (name == "svhn") return svhn_policy();
  throw std::out_of_range("no policy " + name);
}

const std::vector<PolicyPair>& timm_policy(const std::string& name) {
  static const Policy v0r = with_op(timm_v0_policy(), "Posterize", "PosterizeIncreasing");
  static const Policy original_r = with_op(timm_original_policy(), "PosterizeOriginal", "PosterizeIncreasing");
  if (name == "v0") return timm_v0_policy();
  if (name == "v0r") return v0r;
  if (name == "original") return timm_original_policy();
  if (name == "originalr") return original_r;
  if (name == "3a") return timm_3a_policy();
  throw std::out_of_range("no policy " + name);
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

AugmentConfig parse_timm_config(const std::string& text) {
  const std::vector<std::string> parts = split_list(text, '-');
  if (parts.front() != "rand") throw ConfigError("'" + text + "' does not begin with rand-");
  AugmentConfig config;
  bool is_increasing = false;
  for (std::size_t i = 1; i < parts.size(); ++i) apply_part_of_config(parts[i], config, is_increasing);
  if (config.ops.empty()) config.ops = is_increasing ? increasing_ops() : kTimmOps;
  return config;
}

}  // namespace lockstep::data
