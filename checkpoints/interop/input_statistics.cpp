// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/interop/input_statistics.hpp"

#include <algorithm>
#include <cmath>

#include "core/text/parse_value.hpp"
#include "core/text/table.hpp"
#include "core/text/text.hpp"

namespace lockstep::checkpoints {

namespace {

using ConfigValues = std::map<std::string, std::string>;

/// "resize,size=256,filter=bicubic"
struct TransformLine {
  std::string name;
  ConfigValues options;
};

std::string value_of(const ConfigValues& values, const std::string& key, const std::string& otherwise = "") {
  const auto found = values.find(key);
  return found == values.end() || found->second.empty() ? otherwise : found->second;
}

TransformLine parsed_transform(const std::string& text) {
  const std::vector<std::string> parts = entry_parts(text);
  TransformLine line{.name = parts.front() == "normalise" ? "normalize" : parts.front(), .options = {}};
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const auto equals = parts[i].find('=');
    if (equals != std::string::npos)
      line.options[trimmed(parts[i].substr(0, equals))] = trimmed(parts[i].substr(equals + 1));
  }
  return line;
}

bool is_conversion(const TransformLine& line) { return line.name == "normalize" || line.name == "to_float"; }

/// The line of a source without transforms of its own.
std::string default_transform(const ConfigValues& config, std::int64_t channels) {
  if (value_of(config, "data.name") == "idx") return "normalize,mean=0.1307,std=0.3081";
  return channels == 1 ? "normalize,mean=0.449,std=0.226" : "normalize";
}

/// Those of data.val_transform, or else the conversions of data.transform.
std::vector<TransformLine> transforms_of_evaluations(const ConfigValues& config, std::int64_t channels) {
  std::vector<TransformLine> lines;
  for (const std::string& text : words_in(value_of(config, "data.val_transform"), '\n')) {
    lines.push_back(parsed_transform(text));
  }
  if (!lines.empty()) return lines;
  for (const std::string& text : words_in(value_of(config, "data.transform"), '\n')) {
    const TransformLine line = parsed_transform(text);
    if (is_conversion(line)) lines.push_back(line);
  }
  if (lines.empty()) lines.push_back(parsed_transform(default_transform(config, channels)));
  return lines;
}

/// "0.5,0.25,0.5" or "0.5": one number for each channel; empty if it is neither. Earlier versions wrote slashes.
std::vector<double> numbers_of(std::string text, std::int64_t channels) {
  std::replace(text.begin(), text.end(), '/', ',');
  std::vector<double> numbers;
  for (const std::string& word : words_in(text)) {
    const auto number = parse_real(word);
    if (!number) return {};
    numbers.push_back(*number);
  }
  if (numbers.size() == 1)
    numbers.resize(static_cast<std::size_t>(std::max<std::int64_t>(channels, 1)), numbers.front());
  return std::ssize(numbers) == channels ? numbers : std::vector<double>();
}

/// The fraction of which timm computes `resized` again: floor(crop / fraction).
double crop_fraction_of(double crop, double resized) {
  double fraction = crop / resized;
  while (std::floor(crop / fraction) < resized) fraction = std::nextafter(fraction, 0.0);
  return fraction;
}

void add_conversion(const TransformLine& line, std::int64_t channels, const MeasuredStatistics& measured,
                    InputStatistics& result) {
  const auto count = static_cast<std::size_t>(std::max<std::int64_t>(channels, 1));
  if (line.name == "to_float") {
    result.mean.assign(count, 0);
    result.deviation.assign(count, 1);
    return;
  }
  const std::string mean = value_of(line.options, "mean", "0.485,0.456,0.406");
  if (mean == "auto" && measured.mean.size() == count && measured.deviation.size() == count) {
    result.mean = measured.mean;
    result.deviation = measured.deviation;
    return;
  }
  result.mean = numbers_of(mean, channels);
  result.deviation = numbers_of(value_of(line.options, "std", "0.229,0.224,0.225"), channels);
  if (!result.mean.empty() && !result.deviation.empty()) return;
  result.mean.clear();
  result.deviation.clear();
  result.remarks.push_back("the mean and standard deviation of the input are unknown, because data.transform has " +
                           ("normalize,mean=" + mean));
}

/// Normalization by the model itself (model.preprocess = image) joins that of the data.
void add_preprocessing(const ConfigValues& config, std::int64_t channels, InputStatistics& result) {
  if (value_of(config, "model.preprocess") != "image" || result.mean.empty()) return;
  if (value_of(config, "model.image_reversed") == "true") {
    result.remarks.emplace_back("the model reads the channels in reversed order (model.image_reversed)");
  }
  const auto mean = numbers_of(value_of(config, "model.image_mean", "0"), channels);
  const auto deviation = numbers_of(value_of(config, "model.image_std", "1"), channels);
  for (std::size_t c = 0; c < std::min({result.mean.size(), mean.size(), deviation.size()}); ++c) {
    result.mean[c] += mean[c] * result.deviation[c];
    result.deviation[c] *= deviation[c];
  }
}

}  // namespace

InputStatistics input_statistics(const std::map<std::string, std::string>& config, std::int64_t channels,
                                 const MeasuredStatistics& measured) {
  InputStatistics result;
  double resized = 0;
  double crop = 0;
  for (const TransformLine& line : transforms_of_evaluations(config, channels)) {
    const auto size = parse_real(value_of(line.options, "size"));
    const std::string mode = value_of(line.options, "mode", "short");
    if (is_conversion(line)) {
      add_conversion(line, channels, measured, result);
    } else if (line.name == "resize" && size && resized == 0 && (mode == "short" || mode == "squash")) {
      resized = *size;
      result.interpolation = value_of(line.options, "filter", "bilinear");
      if (mode == "squash") result.crop_mode = "squash";
    } else if (line.name == "center_crop" && size && crop == 0) {
      crop = *size;
    } else {
      result.remarks.push_back("the transform " + line.name + " of evaluations is not described");
    }
  }
  if (resized > 0 && crop > 0 && crop <= resized) result.crop_fraction = crop_fraction_of(crop, resized);
  add_preprocessing(config, channels, result);
  return result;
}

}  // namespace lockstep::checkpoints
