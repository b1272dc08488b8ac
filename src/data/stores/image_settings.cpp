// SPDX-License-Identifier: BSD-3-Clause
#include "data/stores/image_settings.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/data/source.hpp>
#include <lockstep/random/random.hpp>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/text/parse_value.hpp"
#include "core/text/table.hpp"
#include "core/text/text.hpp"
#include "data/source/settings.hpp"
#include "data/source/sources.hpp"
#include "data/stores/image_dataset.hpp"
#include "data/transforms/evaluation_lines.hpp"
#include "data/transforms/presets.hpp"

namespace lockstep::data {

namespace {

const TransformRow& row_of_line(const std::string& line, const std::vector<TransformRow>& rows,
                                const std::string& key) {
  return find_row(rows, split_list(line, ',').front(), key);
}

using Lines = std::vector<std::string>;

/// Adds a conversion after the lines that change pixels, unless a line converts already.
void normalize_always(Lines& lines, const std::string& normalize, const std::vector<TransformRow>& rows,
                      const std::string& key) {
  const auto converts = [&](const std::string& line) {
    const std::string& name = row_of_line(line, rows, key).name;
    return name == "normalize" || name == "to_float";
  };
  if (std::any_of(lines.begin(), lines.end(), converts)) return;
  const auto first_tensor = std::find_if(lines.begin(), lines.end(), [&](const std::string& line) {
    return row_of_line(line, rows, key).stage == TransformStage::tensor;
  });
  lines.insert(first_tensor, normalize);
}

constexpr std::int64_t kMaxImages = 2000;
constexpr std::uint64_t kSelectionKey = 0x6D65616E;

/// How often each byte occurs in each channel.
using Histograms = std::vector<std::array<std::uint64_t, 256>>;

void add_pixels(const Image& image, Histograms& histograms) {
  const std::size_t channels = histograms.size();
  for (std::size_t i = 0; i < image.pixels.size(); ++i) ++histograms[i % channels][image.pixels[i]];
}

ChannelStatistics statistics_of(const Histograms& histograms) {
  ChannelStatistics statistics;
  for (const auto& histogram : histograms) {
    std::uint64_t count = 0;
    std::uint64_t sum = 0;
    std::uint64_t squares = 0;
    for (std::uint64_t v = 0; v < 256; ++v) {
      count += histogram[v];
      sum += histogram[v] * v;
      squares += histogram[v] * v * v;
    }
    if (count == 0) throw DataError("no image can be read for the statistics of normalize,mean=auto");
    const double mean = static_cast<double>(sum) / static_cast<double>(count);
    const double variance = static_cast<double>(squares) / static_cast<double>(count) - mean * mean;
    if (variance <= 0) {
      throw DataError(
          "all pixels of a channel are equal, so that normalize,mean=auto has no standard deviation; give "
          "numbers");
    }
    statistics.mean.push_back(mean / 255);
    statistics.std.push_back(std::sqrt(variance) / 255);
  }
  return statistics;
}

/// Calls `call(index, image)` for up to 2000 images, which a keyed permutation selects, until it returns false.
/// @param skips_errors  images that cannot be read do not count
template <class Call>
void visit_some(const ImageStore& store, bool skips_errors, const Call& call) {
  const random::Permutation order(static_cast<std::uint64_t>(store.size()), kSelectionKey);
  ReadBuffer buffer;
  for (std::int64_t i = 0; i < std::min(kMaxImages, store.size()); ++i) {
    const auto index = static_cast<std::int64_t>(order(static_cast<std::uint64_t>(i)));
    try {
      const StoredImage stored = store.read(index, buffer);
      if (!with_place(store, index, [&] { return call(index, stored); })) return;
    } catch (const DataError&) {
      if (!skips_errors) throw;
    }
  }
}

}  // namespace

namespace {

/// data.preset, which also set the loss, the label smoothing and data.repeats.
FormerSetting former_preset() {
  return {.key = "data.preset",
          .translate = [](const std::string& former, const std::string&) { return former; },
          .note =
              "it sets transforms and train.mix only: set loss.name, loss.label_smoothing and data.repeats as the "
              "recipe states, see docs/images.md"};
}

/// data.max_image_bytes.
FormerSetting former_image_bytes() {
  return {.key = "data.max_image_bytes", .translate = [](const std::string& former, const std::string&) {
            const auto bytes = parse_integer(former);
            return bytes ? mb_text(*bytes) : former;
          }};
}

}  // namespace

KeySpec val_fraction_key(const std::string& default_value) {
  return keys::real(
      "data.val_fraction", default_value,
      "Fraction of the images, rows or trajectories that is used for validation, if the source has one part "
      "only. synthetic: 0 "
      "= none, but data.val_size additional images",
      0, 1);
}

KeySpec classes_key() { return keys::integer("data.classes", "0", "Number of classes; 0 = from the data", 0, 1 << 24); }

KeySpecs image_keys() {
  return {
      keys::texts("data.transform", "",
                  "Transform of the training images, 'name,key=value,...'; repeatable, in order. If empty, see "
                  "data.augmentation"),
      keys::texts("data.val_transform", "",
                  "Transform of the images for evaluation; repeatable, in order. If empty, derived from "
                  "data.transform: random crops become resize and center_crop, other random lines are left out"),
      keys::replacing(keys::text("data.augmentation", "",
                                 "Published data augmentation that replaces empty data.transform, data.val_transform "
                                 "and train.mix: " +
                                     joined(names_of(presets()))),
                      former_preset()),
      keys::integer("data.image_size", "224", "Height and width of the evaluated images of data.augmentation", 1,
                    1 << 14),
      keys::choice("data.decode", "exact",
                   "Decoding of JPEG files for training: the same pixels as Pillow (exact), or faster from a smaller "
                   "image (fast)",
                   {"exact", "fast"}),
      keys::expert(keys::replacing(
          keys::real_above("data.max_image_mb", 0, 1e9, "512",
                           "Largest image in MiB (1048576 bytes), as a file and as 3 bytes per pixel; larger ones are "
                           "errors"),
          former_image_bytes())),
      keys::choice(
          "data.channels", "auto",
          "Channels of the images: 3 for color, 1 for gray. auto = those of the stored pixels, and 3 for files",
          {"auto", "1", "3"}),
      keys::choice("data.output", "auto",
                   "Pixels of batches: float32 numbers, or bytes (uint8) that the device of the model converts, a "
                   "quarter of the memory. The results have the same bits. auto = uint8 on a GPU, unless a transform "
                   "or train.mix changes float32 numbers",
                   {"auto", "float", "uint8"}),
      keys::choice("data.exif", "ignore",
                   "Orientation in the metadata of JPEG, PNG and WebP files: ignored, or applied as Pillow's "
                   "exif_transpose does",
                   {"ignore", "apply"}),
      keys::choice(
          "data.check", "quick",
          "Images that are decoded before the start: none (off), 17 of each split (quick), or all (full). With "
          "data.on_error=replace, none",
          {"off", "quick", "full"}),
      keys::choice("data.on_error", "stop",
                   "Use of an image that cannot be read: end the run, or replace it by the next image",
                   {"stop", "replace"}),
      keys::integer("data.max_errors", "100",
                    "Maximum number of different images that data.on_error=replace replaces in a run", 0),
      keys::text("data.exclude", "", "List of images that are not used, such as bad_samples.txt of an earlier run"),
      val_fraction_key(),
      keys::integer("data.split_seed", "0", "Seed of the permutation that selects the images of data.val_fraction", 0),
      classes_key(),
      keys::text("data.class_names", "",
                 "Text file with one class name per line; empty = the names that the source has"),
      keys::integers("data.mask_values", "",
                     "Masks: the stored value of each class, in the order of the classes, such as 0,255. Other values "
                     "are errors, except 255 for ignored pixels. Empty = the values are the numbers of the classes",
                     0, kIgnoredPixel),
  };
}

KeySpecs undivided_image_keys(const KeySpecs& own) {
  KeySpecs keys = with_image_keys(own);
  std::erase_if(keys,
                [](const KeySpec& key) { return key.name == "data.val_fraction" || key.name == "data.split_seed"; });
  return keys;
}

TransformLines transform_lines(const Section& data, const std::vector<TransformRow>& rows, const std::string& normalize,
                               bool is_always_normalized) {
  TransformLines lines{.train = data.texts("transform"), .val = data.texts("val_transform")};
  const std::string& augmentation = data.text("augmentation");
  if (!augmentation.empty()) {
    const ExpandedPreset expanded = expand_preset(augmentation, static_cast<int>(data.integer("image_size")));
    if (lines.train.empty()) lines.train = expanded.train;
    if (lines.val.empty()) lines.val = expanded.val;
  }
  if (lines.train.empty()) lines.train = {normalize};
  if (is_always_normalized) normalize_always(lines.train, normalize, rows, data.cite("transform"));
  if (lines.val.empty()) lines.val = evaluation_lines(lines.train, rows, data.cite("transform"));
  if (is_always_normalized) normalize_always(lines.val, normalize, rows, data.cite("val_transform"));
  return lines;
}

void add_transform_forms(KeySpecs& keys, const std::vector<TransformRow>& rows) {
  KeySpecs of_training;
  KeySpecs of_evaluation;
  for (const TransformRow& row : rows) {
    KeySpec form = keys::text(row.name, "", row.help);
    form.parts = row.keys;
    form.old_names = row.old_names;
    of_training.push_back(form);
    if (!row.is_random) of_evaluation.push_back(form);
  }
  for (KeySpec& key : keys) {
    if (key.name == "data.transform") key.parts = of_training;
    if (key.name == "data.val_transform") key.parts = of_evaluation;
  }
}

std::vector<int> mask_values(const Section& data) {
  std::vector<int> values;
  for (const std::int64_t value : data.integers("mask_values")) {
    if (std::find(values.begin(), values.end(), value) != values.end()) {
      throw ConfigError(data.cite("mask_values") + " lists " + std::to_string(value) + " twice");
    }
    values.push_back(static_cast<int>(value));
  }
  if (std::ssize(values) > kIgnoredPixel) {
    throw ConfigError(data.cite("mask_values") + " lists " + std::to_string(values.size()) +
                      " values, but masks have at most 255 classes");
  }
  if (values.size() == 1) throw ConfigError(data.cite("mask_values") + " lists one value, but needs two or more");
  return values;
}

int channels_of(const Section& data, const ImageStore& store) {
  if (data.text("channels") != "auto") return data.text("channels") == "1" ? 1 : 3;
  return store.facts().shape ? store.facts().shape->channels : 3;
}

PipelineOptions pipeline_options(const Section& data, const ImageStore& store, std::uint64_t seed, bool is_training) {
  return {.lines = {},
          .key = is_training ? data.cite("transform") : data.cite("val_transform"),
          .channels = channels_of(data, store),
          .seed = seed,
          .is_training = is_training,
          .decodes_exactly = !is_training || data.text("decode") == "exact",
          .applies_orientation = data.text("exif") == "apply",
          .max_bytes = max_image_bytes(data),
          .has_masks = store.facts().targets == TargetKind::masks,
          .mask_values = mask_values(data)};
}

std::vector<int> values_in_masks(const ImageStore& masks, std::int64_t max_bytes, bool stops_early, bool skips_errors) {
  Image mask;
  std::array<bool, 256> occurs{};
  visit_some(masks, skips_errors, [&](std::int64_t, const StoredImage& stored) {
    decode_mask(stored.file, read_image_header(stored.file, max_bytes), mask);
    for (const std::uint8_t pixel : mask.pixels) occurs[pixel] = true;
    return !stops_early || std::count(occurs.begin(), occurs.begin() + kIgnoredPixel, true) < 2;
  });
  std::vector<int> values;
  for (int value = 0; value < std::ssize(occurs); ++value) {
    if (occurs[static_cast<std::size_t>(value)]) values.push_back(value);
  }
  return values;
}

ChannelStatistics measured_statistics(const ImageStore& store, const PipelineOptions& how, bool skips_errors) {
  PipelineOptions options = how;
  options.lines = {"to_float"};
  options.is_training = false;
  options.decodes_exactly = true;
  const Pipeline pipeline(options);
  Histograms histograms(static_cast<std::size_t>(pipeline.channels()));
  Workspace workspace;
  visit_some(store, skips_errors, [&](std::int64_t index, const StoredImage& stored) {
    pipeline.run_pixels(stored, {.index = index}, workspace);
    add_pixels(workspace.patch.image, histograms);
    return true;
  });
  return statistics_of(histograms);
}

}  // namespace lockstep::data
