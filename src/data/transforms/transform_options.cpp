// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <algorithm>

#include "data/transforms/transforms.hpp"

namespace lockstep::data {

KeySpec size_key(const std::string& help) {
  return keys::integers("size", "", help + " One number for both sides, or height/width", 1, 65535);
}

KeySpec probability_key(const std::string& default_value) {
  return keys::real("p", default_value, "Probability that the transform is applied", 0, 1);
}

KeySpec filter_key(const std::string& default_value, const std::vector<std::string>& names) {
  return keys::choice("filter", default_value, "Interpolation", names);
}

KeySpec fill_key() {
  return keys::integers("fill", "0", "Color outside the image, one number or red/green/blue", 0, 255);
}

ImageSize square_size(const Section& options) {
  const std::vector<std::int64_t> numbers = options.integers("size");
  if (numbers.empty()) throw ConfigError("size is missing; add size=224, for example");
  if (numbers.size() > 2) throw ConfigError("size has more than two numbers; use one, or height/width");
  return {static_cast<int>(numbers.front()), static_cast<int>(numbers.back())};
}

RealRange range_option(const Section& options, const std::string& key) {
  const std::vector<double> numbers = options.reals(key);
  if (numbers.size() != 2 || numbers[0] > numbers[1]) {
    throw ConfigError(key + " is not a range of two numbers; use " + key + "=low/high");
  }
  return {numbers[0], numbers[1]};
}

RealRange symmetric_option(const Section& options, const std::string& key) {
  const std::vector<double> numbers = options.reals(key);
  if (numbers.size() != 1) return range_option(options, key);
  if (numbers[0] < 0) throw ConfigError(key + " is negative; a single number x stands for the range -x/x");
  return {-numbers[0], numbers[0]};
}

Color fill_option(const Section& options) {
  const std::vector<std::int64_t> numbers = options.integers("fill");
  if (numbers.size() != 1 && numbers.size() != 3) throw ConfigError("fill does not have one or three numbers");
  Color color{};
  for (std::size_t c = 0; c < 3; ++c) color[c] = static_cast<std::uint8_t>(numbers[numbers.size() == 1 ? 0 : c]);
  return color;
}

ResizeFilter filter_option(const Section& options) { return filter_named(options.text("filter")); }

std::optional<RealRange> jitter_range(const std::vector<double>& option, double center, RealRange limits) {
  if (option.empty() || option.size() > 2) throw ConfigError("use one number, or a range low/high");
  RealRange range = {option.front(), option.back()};
  if (option.size() == 1) range = {std::max(center - option[0], limits[0]), center + option[0]};
  if (range[0] > range[1] || range[0] < limits[0] || range[1] > limits[1]) {
    throw ConfigError("the range is empty or exceeds the limits");
  }
  if (range[0] == center && range[1] == center) return std::nullopt;
  return range;
}

const std::vector<TransformRow>& builtin_transforms() {
  static const std::vector<TransformRow> rows = [] {
    std::vector<TransformRow> all;
    for (auto* part : {crop_transforms, geometry_transforms, color_transforms, policy_transforms, tensor_transforms}) {
      for (TransformRow& row : part()) all.push_back(std::move(row));
    }
    return all;
  }();
  return rows;
}

}  // namespace lockstep::data
