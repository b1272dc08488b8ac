// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/interop/timm_config.hpp"

#include <lockstep/core/error.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <span>

#include "checkpoints/foreign/source.hpp"

namespace lockstep::checkpoints {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{16} << 20;
constexpr int kMaxConfigNesting = 64;
constexpr std::int64_t kMaxSide = 65535;
constexpr std::int64_t kMaxClasses = 1 << 20;
constexpr std::array kWeightFiles = {"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"};

/// Reads typed entries of an object of the file; each message names the entry.
class Entries {
 public:
  Entries(const Json& json, std::string path, std::string prefix)
      : json_(json), path_(std::move(path)), prefix_(std::move(prefix)) {}

  bool has(const char* key) const { return json_.contains(key) && !json_.at(key).is_null(); }

  [[noreturn]] void refuse(const std::string& key, const std::string& expected) const {
    constexpr std::size_t kShown = 60;
    std::string found = json_.at(key).dump(-1, ' ', true, Json::error_handler_t::replace);
    if (found.size() > kShown) found = found.substr(0, kShown) + "...";
    throw CheckpointError(path_, prefix_ + key + " = " + found + " is not " + expected);
  }

  std::string text(const char* key, const std::string& otherwise) const {
    if (!has(key)) return otherwise;
    if (!json_.at(key).is_string()) refuse(key, "a text");
    return json_.at(key).get<std::string>();
  }

  std::int64_t integer(const char* key, std::int64_t otherwise, std::int64_t max) const {
    if (!has(key)) return otherwise;
    const std::string expected = "an integer from 0 to " + std::to_string(max);
    if (!json_.at(key).is_number_integer()) refuse(key, expected);
    const bool is_large = json_.at(key).is_number_unsigned() && json_.at(key).get<std::uint64_t>() > INT64_MAX;
    const auto value = is_large ? INT64_MAX : json_.at(key).get<std::int64_t>();
    if (value < 0 || value > max) refuse(key, expected);
    return value;
  }

  double real(const char* key, double otherwise, double min, double max) const {
    if (!has(key)) return otherwise;
    const bool is_number = json_.at(key).is_number();
    const double value = is_number ? json_.at(key).get<double>() : 0;
    const bool is_inside = std::isfinite(value) && value >= min && value <= max;
    if (!is_number || !is_inside) refuse(key, "a number from " + short_text(min) + " to " + short_text(max));
    return value;
  }

  std::vector<double> reals(const char* key, const std::vector<double>& otherwise, std::size_t count) const {
    if (!has(key)) return otherwise;
    const std::string expected = "a list of " + std::to_string(count) + " numbers";
    const Json& list = json_.at(key);
    if (!list.is_array() || list.size() != count) refuse(key, expected);
    std::vector<double> values;
    for (const Json& value : list) {
      if (!value.is_number() || !std::isfinite(value.get<double>())) refuse(key, expected);
      values.push_back(value.get<double>());
    }
    return values;
  }

  static std::string short_text(double value) {
    std::array<char, 32> text{};
    return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
  }

 private:
  const Json& json_;
  std::string path_;
  std::string prefix_;
};

Json parsed(const std::string& text, const std::string& path) {
  if (text.find('\0') != std::string::npos) throw CheckpointError(path, "it has a NUL, so it is not JSON");
  const auto check = [&path](int depth, Json::parse_event_t, Json&) {
    if (depth > kMaxConfigNesting) throw CheckpointError(path, "it is nested more than 64 levels deep");
    return true;
  };
  try {
    Json json = Json::parse(text, check);
    if (!json.is_object()) throw CheckpointError(path, "it is not a JSON object");
    return json;
  } catch (const Json::parse_error& error) {
    throw CheckpointError(path, "it is not JSON in UTF-8 at byte " + std::to_string(error.byte));
  } catch (const Json::out_of_range&) {
    throw CheckpointError(path, "it contains a number that is too large");
  }
}

std::string without_tag(const std::string& architecture) { return architecture.substr(0, architecture.find('.')); }

/// The names of the classes: a list, or an object from numbers to names. Numbers without a name are their own name.
std::vector<std::string> label_names_of(const Json& labels, std::int64_t classes, const std::string& path) {
  const std::string expected = "label_names is not a list or an object of texts with one entry for each of the " +
                               std::to_string(classes) + " classes";
  std::vector<std::string> names;
  if (labels.is_array()) {
    for (const Json& label : labels) {
      if (!label.is_string()) throw CheckpointError(path, expected);
      names.push_back(label.get<std::string>());
    }
    if (std::ssize(names) != classes) {
      throw CheckpointError(path, "label_names has " + std::to_string(names.size()) + " entries, but num_classes is " +
                                      std::to_string(classes));
    }
    return names;
  }
  if (!labels.is_object()) throw CheckpointError(path, expected);
  for (std::int64_t i = 0; i < classes; ++i) names.push_back(std::to_string(i));
  for (const auto& [key, label] : labels.items()) {
    std::int64_t number = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), number);
    const bool is_number = error == std::errc() && end == key.data() + key.size();
    if (!label.is_string() || !is_number || number < 0 || number >= classes) throw CheckpointError(path, expected);
    names[static_cast<std::size_t>(number)] = label.get<std::string>();
  }
  return names;
}

PretrainedImages images_of(const Entries& entries, const Json& json) {
  PretrainedImages images;
  if (entries.has("input_size")) {
    const Json& size = json.at("input_size");
    const bool is_size = size.is_array() && size.size() == 3 && std::ranges::all_of(size, [](const Json& n) {
                           return n.is_number_unsigned() && n.get<std::uint64_t>() >= 1 &&
                                  n.get<std::uint64_t>() <= static_cast<std::uint64_t>(kMaxSide);
                         });
    if (!is_size) entries.refuse("input_size", "a list of channels, height and width");
    images.channels = size[0].get<std::int64_t>();
    images.height = size[1].get<std::int64_t>();
    images.width = size[2].get<std::int64_t>();
  }
  images.crop_pct = entries.real("crop_pct", images.crop_pct, 0.01, 10);
  images.crop_mode = entries.text("crop_mode", images.crop_mode);
  images.interpolation = entries.text("interpolation", images.interpolation);
  const auto channels = static_cast<std::size_t>(images.channels);
  const bool has_three = channels == 3;
  images.mean = entries.reals("mean", has_three ? images.mean : std::vector<double>(channels, 0), channels);
  images.std = entries.reals("std", has_three ? images.std : std::vector<double>(channels, 1), channels);
  if (std::ranges::any_of(images.std, [](double value) { return value <= 0; })) {
    entries.refuse("std", "positive");
  }
  return images;
}

std::string channel_text(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) text += (text.empty() ? "" : ",") + Entries::short_text(value);
  return text;
}

}  // namespace

TimmConfig parse_timm_config(const std::string& text, const std::string& path) {
  const Json json = parsed(text, path);
  const Entries root(json, path, "");
  if (!root.has("architecture")) {
    const char* const other = json.contains("model_type") || json.contains("architectures") ? "model_type" : "";
    throw CheckpointError(path, *other != 0 ? "it describes a model of the library transformers (model_type); folders "
                                              "of timm, which have 'architecture', are supported"
                                            : "it has no entry 'architecture', so it is not a folder of timm")
        .as(CheckpointFault::other_kind);
  }
  TimmConfig config{.path = path, .architecture = without_tag(root.text("architecture", ""))};
  if (config.architecture.empty()) root.refuse("architecture", "the name of a model");

  // Folders of early versions have the entries of pretrained_cfg at the top.
  const Json& pretrained = root.has("pretrained_cfg") ? json.at("pretrained_cfg") : json;
  if (!pretrained.is_object()) root.refuse("pretrained_cfg", "an object");
  const Entries images(pretrained, path, root.has("pretrained_cfg") ? "pretrained_cfg." : "");
  config.num_classes = images.integer("num_classes", config.num_classes, kMaxClasses);
  config.num_classes = root.integer("num_classes", config.num_classes, kMaxClasses);
  config.global_pool = root.text("global_pool", "");
  config.images = images_of(images, pretrained);
  if (root.has("model_args")) {
    if (!json.at("model_args").is_object()) root.refuse("model_args", "an object");
    for (const auto& [name, value] : json.at("model_args").items()) {
      config.model_args.emplace(name, value.dump(-1, ' ', false, Json::error_handler_t::replace));
    }
  }
  for (const Json* place : {&json, &pretrained}) {
    for (const char* key : {"label_names", "labels"}) {
      const bool is_given = place->contains(key) && !place->at(key).is_null();
      if (!is_given || !config.label_names.empty() || config.num_classes == 0) continue;
      config.label_names = label_names_of(place->at(key), config.num_classes, path);
    }
  }
  return config;
}

TimmConfig read_timm_config(const std::string& folder) {
  const std::string path = (fs::path(folder) / kConfigFile).string();
  std::error_code unreadable;
  if (!fs::exists(folder, unreadable)) {
    throw CheckpointError(folder, "it does not exist").as(CheckpointFault::missing);
  }
  if (!fs::exists(fs::symlink_status(path, unreadable))) {
    throw CheckpointError(folder, "it is not a folder of timm, because it has no file config.json")
        .as(CheckpointFault::missing);
  }
  const DiskSource source(path);
  if (source.size() > kMaxConfigBytes) source.refuse("it has more than 16 MiB");
  std::string text(source.size(), '\0');
  source.read_to(0, std::as_writable_bytes(std::span(text)));
  return parse_timm_config(text, path);
}

std::string weights_file_in(const std::string& folder) {
  std::error_code unreadable;
  if (!fs::is_directory(folder, unreadable)) return "";
  for (const char* const name : kWeightFiles) {
    const fs::path file = fs::path(folder) / name;
    // A link to nothing is an error of its reader, which names the link.
    if (fs::exists(fs::symlink_status(file, unreadable))) return file.string();
  }
  if (!fs::exists(fs::path(folder) / kConfigFile, unreadable)) return "";
  throw CheckpointError(folder, "the folder has neither model.safetensors nor pytorch_model.bin")
      .as(CheckpointFault::missing);
}

std::string normalize_line(const PretrainedImages& images) {
  return "normalize,mean=" + channel_text(images.mean) + ",std=" + channel_text(images.std);
}

std::vector<std::string> evaluation_lines(const PretrainedImages& images, const std::string& path) {
  static const std::array kFilters = {"nearest", "bilinear", "bicubic", "lanczos"};
  const auto refuse = [&path](const std::string& what) -> CheckpointError {
    return CheckpointError(path, "pretrained_cfg." + what + "; set data.transform and data.val_transform")
        .as(CheckpointFault::incompatible);
  };
  if (images.height != images.width) throw refuse("input_size is not square, which is not supported");
  if (std::ranges::find(kFilters, images.interpolation) == kFilters.end()) {
    throw refuse("interpolation = \"" + images.interpolation +
                 "\" is not supported (nearest, bilinear, bicubic, lanczos)");
  }
  const bool is_squashed = images.crop_mode == "squash";
  if (!is_squashed && images.crop_mode != "center") {
    throw refuse("crop_mode = \"" + images.crop_mode + "\" is not supported (center, squash)");
  }
  const double resized = std::floor(static_cast<double>(images.height) / images.crop_pct);
  const std::string filter = ",filter=" + images.interpolation + (is_squashed ? ",mode=squash" : "");
  return {"resize,size=" + std::to_string(std::llround(std::max(1.0, resized))) + filter,
          "center_crop,size=" + std::to_string(images.height), normalize_line(images)};
}

}  // namespace lockstep::checkpoints
