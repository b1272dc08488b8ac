// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/data/contact_sheet.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "core/text/text.hpp"
#include "data/stores/image_dataset.hpp"
#include "report/files/image.hpp"
#include "report/page/html.hpp"

namespace lockstep::trainer {

namespace {

constexpr std::int64_t kRows = 8;
constexpr std::int64_t kDraws = 7;
constexpr std::int64_t kTries = 64;  // draws until a transform changes the picture

/// RGB pixels of the last run of a pipeline.
Picture picture_in(const data::Workspace& workspace) {
  const data::Image& from = workspace.patch.image;
  Picture image{.name = "", .step = 0, .height = from.height, .width = from.width};
  image.pixels.resize(static_cast<std::size_t>(from.height) * static_cast<std::size_t>(from.width) * 3);
  const auto channels = static_cast<std::size_t>(from.channels);
  for (std::size_t i = 0; i < image.pixels.size(); ++i) {
    image.pixels[i] = channels == 3 ? from.pixels[i] : from.pixels[i / 3 * channels];
  }
  return image;
}

/// The color of a class: its bits, lowest first, are the upper bits of red, green and blue in turn. Ignored pixels are
/// white.
std::array<std::uint8_t, 3> color_of_class(std::uint8_t number) {
  std::array<std::uint8_t, 3> color{};
  if (number == data::kIgnoredPixel) return {255, 255, 255};
  for (std::size_t bit = 0; bit < 8; ++bit) color[bit % 3] |= (number >> bit & 1) << (7 - bit / 3);
  return color;
}

/// The mask of the last run of a pipeline, with a color for each class.
Picture mask_picture_in(const data::Workspace& workspace) {
  const data::Image& mask = workspace.mask;
  Picture image{.name = "", .step = 0, .height = mask.height, .width = mask.width};
  for (const std::uint8_t pixel : mask.pixels) {
    const auto color = color_of_class(pixel);
    image.pixels.insert(image.pixels.end(), color.begin(), color.end());
  }
  return image;
}

/// The classes in a mask: "0 background, 3 person".
std::string classes_in(const data::Image& mask, const std::vector<std::string>& names) {
  const std::set<std::uint8_t> classes(mask.pixels.begin(), mask.pixels.end());
  std::string text;
  for (const std::uint8_t c : classes) {
    const std::string name = c == data::kIgnoredPixel ? " ignored" : c < names.size() ? " " + names[c] : "";
    text += (text.empty() ? "" : ", ") + std::to_string(c) + name;
  }
  return text;
}

/// RGB pixels of float values in [0, 1], which are clipped to it.
Picture picture_of(const std::vector<float>& values, std::int64_t height, std::int64_t width, int channels) {
  Picture image{.name = "", .step = 0, .height = height, .width = width};
  const auto plane = static_cast<std::size_t>(height * width);
  image.pixels.resize(3 * plane);
  for (std::size_t i = 0; i < image.pixels.size(); ++i) {
    const float value = values[channels == 3 ? i % 3 * plane + i / 3 : i / 3];
    image.pixels[i] = static_cast<std::uint8_t>(std::lround(255 * std::clamp(value, 0.0F, 1.0F)));
  }
  return image;
}

/// The picture that a model gets of a training draw. Where tensor transforms do more than to convert the pixels, their
/// values are converted back as a line through the values of the bytes 0 and 255, so that erased boxes are visible:
/// zeros have the color of the mean.
Picture picture_of_draw(const data::Pipeline& pipeline, const data::StoredImage& stored, const batch::Draw& draw,
                        data::Workspace& workspace, int crop) {
  pipeline.run_pixels(stored, draw, workspace, crop);
  if (pipeline.byte_table()) return picture_in(workspace);
  const data::Image& pixels = workspace.patch.image;
  const std::size_t plane = pixels.pixels.size() / static_cast<std::size_t>(pixels.channels);
  std::vector<float> values(pixels.pixels.size());
  pipeline.run(stored, draw, values, workspace, crop);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto& table = pipeline.conversion()[i / plane];
    values[i] = (values[i] - table[0]) / (table[255] - table[0]);
  }
  return picture_of(values, pixels.height, pixels.width, pixels.channels);
}

data::Pipeline pipeline_of(data::PipelineOptions options, std::vector<std::string> lines,
                           const std::vector<data::TransformRow>& rows) {
  options.lines = std::move(lines);
  return data::Pipeline(options, rows);
}

std::string target_of(const data::ImageStore& store, std::int64_t index, const std::vector<std::string>& names) {
  switch (store.facts().targets) {
    case data::TargetKind::numbers: {
      std::vector<std::string> words;
      for (const double number : store.target(index).numbers) words.push_back(number_text(number));
      return joined(words);
    }
    case data::TargetKind::none:
    case data::TargetKind::masks:
      return "";
    default: {
      std::string text;
      for (const std::int64_t label : store.target(index).classes) {
        const auto c = static_cast<std::size_t>(label);
        text += (text.empty() ? "" : ", ") + (c < names.size() ? names[c] : std::to_string(label));
      }
      return text;
    }
  }
}

std::string size_text(const Picture& image) {
  return std::to_string(image.width) + " x " + std::to_string(image.height);
}

/// A line with options where the default ones need an addition or change nothing.
std::string example_line(const data::TransformRow& row, const Picture& original) {
  const std::string size = ",size=" + std::to_string((std::min(original.height, original.width) + 1) / 2);
  static const std::map<std::string, std::string> options = {
      {"color_jitter", ",brightness=0.5,contrast=0.5,saturation=0.5,hue=0.1"},
      {"affine", ",degrees=20,translate=0.1,0.1,shear=10"}};
  const auto found = options.find(row.name);
  if (found != options.end()) return row.name + found->second;
  const bool needs_size = std::any_of(row.keys.begin(), row.keys.end(), [](const KeySpec& key) {
    return key.name == "size" && (key.default_value.empty() || key.default_value == "0");
  });
  return row.name + (needs_size ? size : "");
}

/// The result of the first draw that changes the picture, or of the last one tried.
CaptionedImage picture_of_transform(const data::StoredImage& stored, const data::TransformRow& row,
                                    const data::PipelineOptions& how, const std::vector<data::TransformRow>& rows,
                                    const Picture& original) {
  const bool is_tensor = row.stage == data::TransformStage::tensor;
  const data::Pipeline pipeline = pipeline_of(how, {example_line(row, original)}, rows);
  data::Workspace workspace;
  CaptionedImage result;
  for (std::int64_t epoch = 0; epoch < kTries; ++epoch) {
    const batch::Draw draw{.index = 0, .epoch = epoch, .position = 0};
    pipeline.run_pixels(stored, draw, workspace);
    result.image = picture_in(workspace);
    if (is_tensor) {
      std::vector<float> values(workspace.patch.image.pixels.size());
      pipeline.run(stored, draw, values, workspace);
      result.image = picture_of(values, result.image.height, result.image.width, pipeline.channels());
    }
    const std::string drawn = pipeline.drawn_text(workspace);
    result.caption = drawn.empty() ? row.name : drawn;
    if (result.image.pixels != original.pixels) break;
    if (!row.is_random) break;
  }
  return result;
}

}  // namespace

ContactSheet sheet_of_samples(const data::ImageStore& store, const data::Pipeline& pipeline,
                              const data::PipelineOptions& how, const std::vector<std::string>& class_names) {
  ContactSheet sheet{.title = "Samples and what training makes of them", .columns = 1 + kDraws, .cells = {}};
  const data::Pipeline plain = pipeline_of(how, {"to_float"}, data::builtin_transforms());
  const std::int64_t rows = std::min(kRows, store.size());
  data::ReadBuffer buffer;
  data::ReadBuffer mask_buffer;
  data::Workspace workspace;
  const auto& masks = store.facts().masks;
  const bool has_masks = masks != nullptr;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t index = row * store.size() / rows;
    const data::StoredImage stored = store.read(index, buffer);
    const data::StoredImage mask = has_masks ? masks->read(index, mask_buffer) : data::StoredImage{};
    const auto add_mask = [&](const data::Pipeline& mover) {
      if (!has_masks) return;
      try {
        mover.run_mask(mask, 0, workspace);
      } catch (const DataError& error) {
        throw DataError("its mask " + masks->place(index) + ": " + error.what());
      }
      sheet.cells.push_back({mask_picture_in(workspace), classes_in(workspace.mask, class_names)});
    };
    data::with_place(store, index, [&] {
      plain.run_pixels(stored, {.index = index}, workspace);
      Picture original = picture_in(workspace);
      const std::string caption = (has_masks ? "" : target_of(store, index, class_names) + ", ") + size_text(original) +
                                  ", " + store.name(index);
      sheet.cells.push_back({std::move(original), caption});
      add_mask(plain);
      for (std::int64_t column = 0; column < (has_masks ? kDraws / 2 : kDraws); ++column) {
        const int crop = static_cast<int>(column % pipeline.crops());
        const batch::Draw draw{.index = index, .epoch = column / pipeline.crops(), .position = index};
        Picture picture = picture_of_draw(pipeline, stored, draw, workspace, crop);
        const std::string drawn = pipeline.drawn_text(workspace, crop);
        sheet.cells.push_back({std::move(picture), drawn.empty() ? "nothing drawn" : drawn});
        add_mask(pipeline);
      }
    });
  }
  return sheet;
}

ContactSheet sheet_of_transforms(const data::ImageStore& store, std::int64_t index, const data::PipelineOptions& how,
                                 const std::vector<data::TransformRow>& rows) {
  ContactSheet sheet{.title = "Transforms, with their default options where possible", .columns = 6, .cells = {}};
  data::ReadBuffer buffer;
  data::Workspace workspace;
  const data::StoredImage stored = store.read(index, buffer);
  data::with_place(store, index, [&] {
    pipeline_of(how, {"to_float"}, rows).run_pixels(stored, {}, workspace);
    const Picture original = picture_in(workspace);
    sheet.cells.push_back({original, "original"});
    for (const data::TransformRow& row : rows) {
      try {
        CaptionedImage picture = picture_of_transform(stored, row, how, rows, original);
        if (!picture.caption.starts_with(row.name)) picture.caption = row.name + ": " + picture.caption;
        sheet.cells.push_back(std::move(picture));
      } catch (const ConfigError&) {
        sheet.cells.push_back({original, row.name + ": it has no defaults for this image"});
      } catch (const DataError&) {
        sheet.cells.push_back({original, row.name + ": it cannot be applied to this image"});
      }
    }
  });
  return sheet;
}

std::string sheet_page(const ContactSheet& sheet) {
  std::string figures;
  for (const CaptionedImage& cell : sheet.cells) {
    const report::EncodedImage png = report::png_of(cell.image);
    figures += report::html_figure({.alt = cell.caption,
                                    .caption = cell.caption,
                                    .height = png.height,
                                    .width = png.width,
                                    .png = report::base64_of(png.bytes)});
  }
  return report::html_page(sheet.title,
                           "<style>.sheet .broad{grid-column:auto}</style>\n<div class=\"pictures sheet\" "
                           "style=\"grid-template-columns:repeat(" +
                               std::to_string(sheet.columns) + ",minmax(6.5rem,1fr))\">\n" + figures + "</div>\n");
}

}  // namespace lockstep::trainer
