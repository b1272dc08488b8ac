// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <nlohmann/json.hpp>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <span>
#include <utility>

#include "arrays/array_file.hpp"
#include "arrays/packing.hpp"
#include "core/text/parse_value.hpp"
#include "core/text/text.hpp"
#include "data/fields/field_normalization.hpp"

namespace lockstep::data {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostNumbers = 1 << 20;

/// All numbers of an array. @param name  "" = the only array of an npy file
std::vector<double> array_numbers(const std::string& path, const std::string& name) {
  const auto file = arrays::open_arrays(path);
  const arrays::ArrayInfo info = file->find(name);
  const arrays::Slab slab = arrays::whole(info);
  const std::int64_t size = arrays::size_of(slab);
  if (size > kMostNumbers) {
    throw DataError(path, "has " + std::to_string(size) + " numbers, but statistics are one number for each channel");
  }
  std::vector<std::byte> stored(static_cast<std::size_t>(size) * info.type.bytes);
  file->read(info, slab, stored);
  std::vector<double> numbers(static_cast<std::size_t>(size));
  arrays::decode(arrays::packing_of(path, info), stored, std::span(numbers));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (std::isfinite(numbers[i])) continue;
    throw DataError(path, "the number of channel " + std::to_string(i) + " is " + number_text(numbers[i]) +
                              "; statistics must be finite");
  }
  return numbers;
}

/// @throws DataError  a deviation is 0 or negative
void require_positive(const std::string& path, const std::vector<double>& numbers) {
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i] > 0) continue;
    throw DataError(path, "the deviation of channel " + std::to_string(i) + " is " + number_text(numbers[i]) +
                              "; it must be above 0");
  }
}

/// A kind of number, by the name that files have for it.
struct NumberRow {
  std::string_view name;
  ChannelNumbers FieldNumbers::*part;
  double ChannelNumbers::*number;
};
constexpr NumberRow kNumbers[] = {{"mean", &FieldNumbers::values, &ChannelNumbers::mean},
                                  {"std", &FieldNumbers::values, &ChannelNumbers::std},
                                  {"rms", &FieldNumbers::values, &ChannelNumbers::rms},
                                  {"min", &FieldNumbers::values, &ChannelNumbers::min},
                                  {"max", &FieldNumbers::values, &ChannelNumbers::max},
                                  {"mean_delta", &FieldNumbers::differences, &ChannelNumbers::mean},
                                  {"std_delta", &FieldNumbers::differences, &ChannelNumbers::std},
                                  {"rms_delta", &FieldNumbers::differences, &ChannelNumbers::rms}};

const NumberRow* row_named(std::string_view name) {
  for (const NumberRow& row : kNumbers) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

void put(std::vector<FieldNumbers>& channels, const std::string& path, const NumberRow& row,
         const std::vector<double>& numbers) {
  if (channels.empty()) channels.resize(numbers.size());
  if (channels.size() != numbers.size()) {
    throw DataError(path, "has " + std::to_string(numbers.size()) + " numbers of " + std::string(row.name) + ", but " +
                              std::to_string(channels.size()) + " of mean; give one for each channel");
  }
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    ChannelNumbers& part = channels[i].*row.part;
    part.*row.number = numbers[i];
    part.count = 1;
  }
}

// ---- stats.yaml of The Well: a part for each kind of number, in it a number, or lists of them, for each field.

/// The numbers of the fields of a part, row by row.
using YamlPart = std::vector<std::pair<std::string, std::vector<double>>>;

/// Reads the YAML that The Well writes: two levels of keys in blocks, and lists of numbers in lines with "- ".
std::vector<std::pair<std::string, YamlPart>> yaml_parts(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw DataError(path, "cannot be read; check data.statistics");
  std::vector<std::pair<std::string, YamlPart>> parts;
  std::int64_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    const auto fail = [&]() -> DataError {
      return {path, "line " + std::to_string(number) +
                        " has not one of the forms of The Well's stats.yaml: `mean:`, `  field: NUMBER`, `  field:`, "
                        "`  - NUMBER` and `  - - NUMBER`"};
    };
    std::string text = trimmed(line);
    if (text.empty() || text.starts_with('#')) continue;
    if (text.starts_with("- ")) {
      while (text.starts_with("- ")) text = trimmed(text.substr(2));
      const auto value = parse_real(text);
      if (!value || parts.empty() || parts.back().second.empty()) throw fail();
      parts.back().second.back().second.push_back(*value);
      continue;
    }
    const std::size_t colon = text.find(':');
    if (colon == std::string::npos) throw fail();
    const std::string key = text.substr(0, colon);
    const std::string rest = trimmed(text.substr(colon + 1));
    if (line.front() != ' ') {
      if (!rest.empty()) throw fail();
      parts.push_back({key, {}});
      continue;
    }
    if (parts.empty()) throw fail();
    parts.back().second.push_back({key, {}});
    if (rest.empty()) continue;
    const auto value = parse_real(rest);
    if (!value) throw fail();
    parts.back().second.back().second.push_back(*value);
  }
  return parts;
}

/// "velocity_x" for component 0 of 2; "strain_xy" for component 1 of 4.
std::string component_name(const std::string& field, std::size_t component, std::size_t count) {
  static const std::string kAxes = "xyz";
  if (count == 1) return field;
  if (count <= kAxes.size()) return field + "_" + kAxes[component];
  const std::size_t size = count == 4 ? 2 : 3;
  if (size * size != count) return field + std::to_string(component);
  return field + "_" + kAxes[component / size] + kAxes[component % size];
}

std::map<std::string, FieldNumbers> well_numbers(const std::string& path) {
  std::map<std::string, FieldNumbers> channels;
  for (const auto& [name, fields] : yaml_parts(path)) {
    const NumberRow* const row = row_named(name);
    if (row == nullptr) continue;
    for (const auto& [field, numbers] : fields) {
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        const std::string channel = component_name(field, i, numbers.size());
        if (!std::isfinite(numbers[i])) {
          throw DataError(path, std::string(row->name) + " of '" + channel + "' is " + number_text(numbers[i]) +
                                    "; statistics must be finite");
        }
        FieldNumbers& of_channel = channels[channel];
        of_channel.channel = channel;
        (of_channel.*row->part).*row->number = numbers[i];
        (of_channel.*row->part).count = 1;
      }
    }
  }
  if (channels.empty()) throw DataError(path, "states no mean, std or rms; check data.statistics");
  return channels;
}

// ---- statistics.json of a run: the channels of the inputs, then those of targets that are no inputs.

ChannelNumbers numbers_in(const nlohmann::json& json) {
  const auto number = [&json](const char* name) {
    return json.at(name).is_null() ? std::numeric_limits<double>::quiet_NaN() : json.at(name).get<double>();
  };
  return {.count = number("count"),
          .mean = number("mean"),
          .std = number("std"),
          .rms = number("rms"),
          .min = number("min"),
          .max = number("max")};
}

/// @param lead  stored steps of the differences that count
std::vector<FieldNumbers> run_numbers(const std::string& path, std::int64_t lead) {
  std::ifstream file(path);
  if (!file) throw DataError(path, "cannot be read; check data.statistics");
  std::vector<FieldNumbers> channels;
  try {
    const nlohmann::json json = nlohmann::json::parse(file);
    const bool has_differences = json.at("difference_steps").get<std::int64_t>() == lead;
    for (const nlohmann::json& each : json.at("channels")) {
      channels.push_back({.channel = each.at("channel").get<std::string>(), .values = numbers_in(each.at("values"))});
      if (has_differences && each.contains("differences")) {
        channels.back().differences = numbers_in(each.at("differences"));
      }
    }
  } catch (const nlohmann::json::exception&) {
    throw DataError(path,
                    "is no statistics.json of a run: it needs difference_steps and channels, each with its numbers; "
                    "trainer data --statistics writes such a file");
  }
  for (const FieldNumbers& each : channels) {
    if (std::isfinite(each.values.mean) && each.values.std >= 0 && std::isfinite(each.values.std)) continue;
    throw DataError(path, "mean and std of '" + each.channel + "' are " + number_text(each.values.mean) + " and " +
                              number_text(each.values.std) + "; statistics must be finite");
  }
  if (channels.empty()) throw DataError(path, "states no channels; check data.statistics");
  return channels;
}

/// Reads two npy files: means, then deviations. @param is_delta  those of differences
void add_pair(std::vector<FieldNumbers>& channels, const std::string& means, const std::string& deviations,
              bool is_delta) {
  const std::vector<double> means_of_channels = array_numbers(means, "");
  const std::vector<double> numbers = array_numbers(deviations, "");
  require_positive(deviations, numbers);
  if (means_of_channels.size() != numbers.size()) {
    throw DataError(means, "has " + std::to_string(means_of_channels.size()) + " numbers, but " + deviations + " has " +
                               std::to_string(numbers.size()) + "; give one for each channel");
  }
  put(channels, means, *row_named(is_delta ? "mean_delta" : "mean"), means_of_channels);
  put(channels, deviations, *row_named(is_delta ? "std_delta" : "std"), numbers);
}

}  // namespace

StatedNumbers StatedNumbers::from(const std::string& text, std::int64_t lead, const std::string& cited) {
  StatedNumbers given;
  if (text.ends_with(".json")) {
    given.path_ = text;
    for (const FieldNumbers& each : run_numbers(text, lead)) {
      given.by_name_.try_emplace(each.channel, each);
      given.targets_by_name_.insert_or_assign(each.channel, each);
    }
    return given;
  }
  if (text.ends_with(".yaml") || text.ends_with(".yml")) {
    given.path_ = text;
    given.is_of_the_well_ = true;
    given.by_name_ = well_numbers(text);
    return given;
  }
  if (fs::is_directory(text)) {
    given.path_ = text + "/global_means.npy";
    add_pair(given.by_position_, given.path_, text + "/global_stds.npy", false);
    const std::string suffix = "_dt" + std::to_string(lead) + ".npy";
    const std::string means = text + "/time_diff_means" + suffix;
    if (fs::exists(means)) add_pair(given.by_position_, means, text + "/time_diff_stds" + suffix, true);
    return given;
  }
  const std::size_t colon = text.find(":mean=") != std::string::npos ? text.find(":mean=") : text.rfind(':');
  const std::vector<std::string> files = split(text, ',');
  if (colon == std::string::npos || (files.size() == 2 && files[0].ends_with(".npy"))) {
    if (files.size() != 2) {
      throw ConfigError(cited + ": '" + text +
                        "' is neither compute nor a statistics.json, a folder, MEANS.npy,STDS.npy, a stats.yaml, or "
                        "FILE:mean=PATH,std=PATH");
    }
    given.path_ = files[0];
    add_pair(given.by_position_, files[0], files[1], false);
    return given;
  }
  given.path_ = text.substr(0, colon);
  for (const std::string& part : split(text.substr(colon + 1), ',')) {
    const std::size_t equals = part.find('=');
    const NumberRow* const row = equals == std::string::npos ? nullptr : row_named(part.substr(0, equals));
    if (row == nullptr) {
      throw ConfigError(cited + ": '" + part +
                        "' is not one of mean=, std=, rms=, min=, max=, mean_delta=, std_delta= " +
                        "and rms_delta= with the path of an array");
    }
    const std::vector<double> numbers = array_numbers(given.path_, part.substr(equals + 1));
    if (row->name == "std" || row->name == "rms") require_positive(given.path_, numbers);
    put(given.by_position_, given.path_, *row, numbers);
  }
  return given;
}

FieldNumbers StatedNumbers::of(const std::string& channel, std::int64_t position, std::int64_t all,
                               bool is_target) const {
  FieldNumbers numbers;
  if (has_names()) {
    const auto& names = is_target && !targets_by_name_.empty() ? targets_by_name_ : by_name_;
    const auto found = names.find(channel);
    if (found == names.end()) throw DataError(path_, "states no numbers of the channel '" + channel + "'");
    numbers = found->second;
  } else {
    if (std::ssize(by_position_) != all) {
      throw DataError(path_, "has numbers of " + std::to_string(by_position_.size()) + " channels, but the data have " +
                                 std::to_string(all));
    }
    numbers = by_position_[static_cast<std::size_t>(position)];
  }
  numbers.channel = channel;
  return numbers;
}

}  // namespace lockstep::data
