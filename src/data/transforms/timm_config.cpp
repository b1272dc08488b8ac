// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <cctype>
#include <limits>
#include <optional>

#include "core/text/parse_value.hpp"
#include "core/text/text.hpp"
#include "data/transforms/policies.hpp"

namespace lockstep::data {

namespace {

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
  double sum = 0;
  for (const double weight : ops.weights) sum += weight;
  config.ops = ops.names;
  config.weights.clear();
  for (const double weight : ops.weights) config.weights.push_back(weight / sum);
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
