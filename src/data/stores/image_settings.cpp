// SPDX-License-Identifier: BSD-3-Clause
#include "data/stores/image_settings.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/data/source.hpp>

#include <algorithm>

#include "core/text/table.hpp"
#include "core/text/text.hpp"
#include "data/transforms/presets.hpp"

namespace lockstep::data {

namespace {

const TransformRow& row_of_line(const std::string& line, const std::vector<TransformRow>& rows,
                                const std::string& key) {
  return find_row(rows, split_list(line, ',').front(), key);
}

using Lines = std::vector<std::string>;

/// Adds a conversion after the lines that change pixels, unless a line converts already.
void normalise_always(Lines& lines, const std::string& normalise, const std::vector<TransformRow>& rows,
                      const std::string& key) {
  const auto converts = [&](const std::string& line) {
    const std::string& name = row_of_line(line, rows, key).name;
    return name == "normalise" || name == "to_float";
  };
  if (std::any_of(lines.begin(), lines.end(), converts)) return;
  const auto first_tensor = std::find_if(lines.begin(), lines.end(), [&](const std::string& line) {
    return row_of_line(line, rows, key).stage == TransformStage::tensor;
  });
  lines.insert(first_tensor, normalise);
}

}  // namespace

KeySpecs image_keys() {
  return {
      keys::texts("data.transform", "",
                  "Transform of the training images, 'name,key=value,...'; repeatable, in order. If empty, see "
                  "data.preset"),
      keys::texts("data.val_transform", "",
                  "Transform of the images for evaluation; repeatable, in order. If empty, the conversions to float32 "
                  "of data.transform"),
      keys::text(
          "data.preset", "",
          "Published recipe that replaces empty data.transform and data.val_transform: " + joined(names_of(presets()))),
      keys::integer("data.image_size", "224", "Height and width of the evaluated images of data.preset", 1, 1 << 14),
      keys::choice("data.decode", "exact",
                   "Decoding of JPEG files for training: the same pixels as Pillow (exact), or faster from a smaller "
                   "image (fast)",
                   {"exact", "fast"}),
      keys::integer("data.max_image_bytes", "536870912",
                    "Largest image in bytes, as a file and as 3 bytes per pixel; larger ones are errors", 1),
      keys::choice(
          "data.channels", "auto",
          "Channels of the images: 3 for color, 1 for grey. auto = those of the stored pixels, and 3 for files",
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
      keys::real("data.val_fraction", "0.1",
                 "Fraction of the images that is used for validation, if the source has one part only", 0, 1),
      keys::integer("data.split_seed", "0", "Seed of the permutation that selects the images of data.val_fraction", 0),
      keys::integer("data.classes", "0", "Number of classes; 0 = from the data", 0, 1 << 24),
      keys::text("data.class_names", "",
                 "Text file with one class name per line; empty = the names that the source has"),
      keys::integers("data.mask_values", "",
                     "Masks: the stored value of each class, in the order of the classes, such as 0,255. Other values "
                     "are errors, except 255 for ignored pixels. Empty = the values are the numbers of the classes",
                     0, kIgnoredPixel),
  };
}

TransformLines transform_lines(const Section& data, const std::vector<TransformRow>& rows, const std::string& normalise,
                               bool is_always_normalised) {
  TransformLines lines{.train = data.texts("transform"), .val = data.texts("val_transform")};
  const std::string& preset = data.text("preset");
  if (!preset.empty()) {
    const ExpandedPreset expanded = expand_preset(preset, static_cast<int>(data.integer("image_size")));
    if (lines.train.empty()) lines.train = expanded.train;
    if (lines.val.empty()) lines.val = expanded.val;
  }
  if (lines.train.empty()) lines.train = {normalise};
  if (is_always_normalised) normalise_always(lines.train, normalise, rows, data.cite("transform"));
  if (lines.val.empty()) {
    for (const std::string& line : lines.train) {
      const TransformRow& row = row_of_line(line, rows, data.cite("transform"));
      if (row.stage == TransformStage::tensor && !row.is_random) lines.val.push_back(line);
    }
  }
  if (is_always_normalised) normalise_always(lines.val, normalise, rows, data.cite("val_transform"));
  return lines;
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
          .max_bytes = data.integer("max_image_bytes"),
          .has_masks = store.facts().targets == TargetKind::masks,
          .mask_values = mask_values(data)};
}

}  // namespace lockstep::data
