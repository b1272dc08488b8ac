// SPDX-License-Identifier: BSD-3-Clause
#include "data/rows/row_images.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "core/text/text.hpp"

namespace lockstep::data {

namespace {

bool are_channels(std::int64_t size) { return size == 1 || size == 3 || size == 4; }

/// Whether the name of the array says that it has images.
bool is_called_images(const std::string& array) {
  const std::string name = array.substr(array.rfind('/') + 1);
  return name.find("image") != std::string::npos;
}

std::string shape_of_samples(const RowArray& array) {
  std::vector<std::int64_t> shape = array.row_shape();
  shape.insert(shape.begin(), array.size());
  return shape_text(shape);
}

}  // namespace

std::optional<ImageAxes> image_axes(const RowArray& array, const std::string& layout, const std::string& cited) {
  if (!layout.empty() && layout != "nhwc" && layout != "nchw") {
    throw ConfigError(cited + ": '" + layout + "' is neither nhwc nor nchw");
  }
  const arrays::NumberType& type = array.type();
  const std::vector<std::int64_t>& row = array.row_shape();
  const bool has_bytes = type.kind == arrays::NumberKind::unsigned_integer && type.bytes == 1;
  if (!layout.empty() && row.size() != 3) {
    throw ConfigError(cited + " = " + layout + " has four axes, but the shape of " + array.first_place() + " is " +
                      shape_of_samples(array) + "; remove the key");
  }
  if (!has_bytes) return std::nullopt;
  if (row.size() != 2 && row.size() != 3) {
    if (!is_called_images(array.first().array)) return std::nullopt;
    throw DataError(array.first_place(), "has the shape " + shape_of_samples(array) +
                                             ", but images have 3 axes (samples, height, width) or 4 with channels; "
                                             "reshape them, or give the array another name");
  }
  if (std::ranges::any_of(row, [](std::int64_t size) { return size > std::numeric_limits<int>::max(); })) {
    throw DataError(array.first_place(),
                    "has the shape " + shape_of_samples(array) + ", which is too large for images");
  }
  const auto size = [&](std::size_t axis) { return static_cast<int>(row[axis]); };
  if (row.size() == 2) return ImageAxes{.shape = {.height = size(0), .width = size(1), .channels = 1}};
  const bool has_last = layout.empty() ? are_channels(row[2]) : layout == "nhwc";
  const std::int64_t channels = has_last ? row[2] : row[0];
  if (!are_channels(channels)) {
    if (layout.empty() && !is_called_images(array.first().array)) return std::nullopt;
    throw DataError(array.first_place(), "has the shape " + shape_of_samples(array) +
                                             ", but images have 1, 3 or 4 channels on the last axis, or on the second "
                                             "one; see data.layout");
  }
  if (has_last) return ImageAxes{.shape = {.height = size(0), .width = size(1), .channels = size(2)}};
  return ImageAxes{.shape = {.height = size(1), .width = size(2), .channels = size(0)}, .has_first_channels = true};
}

RowImages::RowImages(RowPair rows, const ImageAxes& axes, std::vector<std::string> class_names)
    : rows_(std::move(rows)), axes_(axes) {
  const RowTargets& targets = *rows_.targets;
  PixelShape shape = axes.shape;
  shape.channels = std::min(shape.channels, 3);
  const bool has_classes = targets.kind() == TargetKind::classes || targets.kind() == TargetKind::label_sets;
  facts_ = {.size = rows_.inputs->size(),
            .targets = targets.kind(),
            .classes = has_classes ? targets.width() : 0,
            .class_names = std::move(class_names),
            .numbers = targets.width(),
            .has_weights = rows_.weights != nullptr,
            .shape = shape};
}

StoredImage RowImages::read(std::int64_t index, ReadBuffer& buffer) const {
  const auto stored_channels = static_cast<std::size_t>(axes_.shape.channels);
  const auto channels = static_cast<std::size_t>(facts_.shape->channels);
  const std::size_t stored_bytes = rows_.inputs->row_bytes();
  const std::size_t count = stored_bytes / stored_channels;
  const bool is_as_stored = channels == stored_channels && (channels == 1 || !axes_.has_first_channels);
  const std::size_t needed = stored_bytes + (is_as_stored ? 0 : count * channels);
  if (buffer.bytes.size() < needed) buffer.bytes.resize(needed);
  rows_.inputs->read(index, 1, std::span(buffer.bytes).first(stored_bytes));
  const auto* const stored = reinterpret_cast<const std::uint8_t*>(buffer.bytes.data());
  if (is_as_stored) return {.pixels = {stored, stored_bytes}, .shape = *facts_.shape};
  auto* const pixels = reinterpret_cast<std::uint8_t*>(buffer.bytes.data() + stored_bytes);
  const std::size_t pixel_step = axes_.has_first_channels ? 1 : stored_channels;
  const std::size_t channel_step = axes_.has_first_channels ? count : 1;
  for (std::size_t p = 0; p < count; ++p) {
    for (std::size_t c = 0; c < channels; ++c) pixels[p * channels + c] = stored[p * pixel_step + c * channel_step];
  }
  return {.pixels = {pixels, count * channels}, .shape = *facts_.shape};
}

ImageTarget RowImages::target(std::int64_t index) const {
  const RowTargets& targets = *rows_.targets;
  ImageTarget target{.weight = rows_.weights ? rows_.weight(index) : 1};
  if (targets.kind() == TargetKind::none) return target;
  if (targets.kind() == TargetKind::classes) {
    target.classes = {targets.label(index)};
    return target;
  }
  std::vector<float> values(static_cast<std::size_t>(targets.width()));
  targets.read(index, values);
  if (targets.kind() == TargetKind::numbers) {
    target.numbers.assign(values.begin(), values.end());
    return target;
  }
  for (std::size_t c = 0; c < values.size(); ++c) {
    if (values[c] != 0) target.classes.push_back(static_cast<std::int64_t>(c));
  }
  return target;
}

std::uint64_t RowImages::digest() const {
  return digest_.get([this] { return rows_.digest(axes_.has_first_channels ? 1U : 0U); });
}

}  // namespace lockstep::data
