// SPDX-License-Identifier: BSD-3-Clause
#include "data/stores/image_dataset.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "core/text/duration.hpp"
#include "data/codecs/decode.hpp"
#include "data/image/geometry.hpp"
#include "data/source/chunk_bytes.hpp"
#include "data/source/hash.hpp"
#include "data/stores/file_store.hpp"
#include "data/stores/store_chunks.hpp"
namespace lockstep::data {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMaxReplacements = 16;
constexpr std::uint64_t kMeasuredEvery = 64;
constexpr std::uint64_t kFirstMeasured = 7;  // the first samples of a thread allocate its memory

Task image_task(const ImageStore& store, const ImageDataset::ImageDatasetOptions& options, int channels,
                ImageSize size) {
  Task task{.sample_shape = {channels, size.height, size.width},
            .classes = options.classes,
            .class_names = options.class_names,
            .class_ids = options.class_ids};
  const TargetKind targets = store.facts().targets;
  if (targets == TargetKind::label_sets) task.kind = TaskKind::multilabel;
  if (targets == TargetKind::masks) task.kind = TaskKind::segmentation;
  if (targets == TargetKind::numbers) {
    task.kind = TaskKind::regression;
    task.classes = store.facts().numbers;
  }
  if (targets == TargetKind::none) task.classes = std::max<std::int64_t>(task.classes, 1);
  task.has_weights = store.facts().has_weights;
  return task;
}

Field label_field(TargetKind targets, std::int64_t classes, ImageSize size) {
  if (targets == TargetKind::label_sets || targets == TargetKind::numbers) {
    return {.name = "label", .shape = {classes}, .dtype = at::kFloat};
  }
  if (targets == TargetKind::masks) return {.name = "label", .shape = {size.height, size.width}, .dtype = at::kLong};
  return {.name = "label", .shape = {}, .dtype = at::kLong};
}

/// @param image  [C, H, W]
bool has_adjacent_channels(const at::Tensor& image) {
  const std::int64_t channels = image.size(0);
  return image.stride(0) == 1 && image.stride(2) == channels && image.stride(1) == channels * image.size(2);
}

std::string crop_name(int crop) { return crop == 0 ? "data" : "crop" + std::to_string(crop); }

}  // namespace

/// Memory that a thread reuses.
struct ImageDataset::Scratch {
  Workspace workspace;
  ReadBuffer buffer;
  std::vector<float> values;  // only used if a tensor is not contiguous
  std::uint64_t samples = 0;  // that the thread has loaded
  LoadTimes times;            // times of the measured sample
};

ImageDataset::Scratch& ImageDataset::scratch() {
  thread_local Scratch scratch;
  return scratch;
}

ImageDataset::ImageDataset(std::shared_ptr<const ImageStore> store, ImageDatasetOptions options)
    : store_(std::move(store)),
      errors_(std::move(options.errors)),
      max_bytes_(options.pipeline.max_bytes),
      pipeline_(options.pipeline, *options.rows) {
  if (store_->size() < 1) throw DataError("a split has no samples");
  std::optional<ImageSize> stored;
  if (const auto& shape = store_->facts().shape) stored = ImageSize{shape->height, shape->width};
  for (int crop = 0; crop < pipeline_.crops(); ++crop) {
    const auto fixed = pipeline_.size(stored, crop);
    const ImageSize size = fixed ? *fixed : size_of_first(crop);
    sizes_.push_back(size);
    layout_.fields.push_back({.name = crop_name(crop),
                              .shape = {pipeline_.channels(), size.height, size.width},
                              .format = FieldFormat::any});
  }
  task_ = image_task(*store_, options, pipeline_.channels(), sizes_.front());
  layout_.fields.push_back(label_field(store_->facts().targets, task_.classes, sizes_.front()));
  if (task_.has_weights) layout_.fields.push_back({.name = "weight", .shape = {}});
  if (options.output != PixelOutput::floats) offer_bytes(options.output, options.pipeline.key);
  const std::string changing = pipeline_.float_transform();
  if (layout_.byte_fields.empty() && !changing.empty()) layout_.float_reason = changing + " changes float32 numbers";
}

void ImageDataset::offer_bytes(PixelOutput output, const std::string& key) {
  const std::optional<ByteTable> table = pipeline_.byte_table();
  if (!table) {
    if (output == PixelOutput::either) return;
    throw ConfigError("data.output = uint8: " + pipeline_.float_transform() + " of " + key +
                      " changes float32 numbers, but the batches contain bytes; remove the transform or set "
                      "data.output=float");
  }
  const at::Tensor numbers = at::empty({std::ssize(*table), 256}, at::kFloat);
  for (std::size_t c = 0; c < table->size(); ++c) {
    std::copy((*table)[c].begin(), (*table)[c].end(), numbers.mutable_data_ptr<float>() + 256 * c);
  }
  batch::ByteTables tables;
  layout_.byte_fields = layout_.fields;
  for (std::size_t crop = 0; crop < sizes_.size(); ++crop) {
    Field& field = layout_.byte_fields[crop];
    field.dtype = at::kByte;
    field.format = FieldFormat::channels_last;
    tables[field.name] = numbers;
  }
  layout_.byte_tables = std::make_shared<const batch::ByteTables>(std::move(tables));
  if (output == PixelOutput::bytes) layout_.fields = layout_.byte_fields;
}
ImageSize ImageDataset::size_of_first(int crop) const {
  Scratch& memory = scratch();
  for (std::int64_t index = 0;; ++index) {
    try {
      const StoredImage stored = store_->read(index, memory.buffer);
      with_place(*store_, index, [&] { pipeline_.run_pixels(stored, {.index = index}, memory.workspace, crop); });
      return memory.workspace.patch.image.size();
    } catch (const DataError&) {
      if (!errors_ || index + 1 == std::min<std::int64_t>(kMaxReplacements, size())) throw;
    }
  }
}

void ImageDataset::fill(const batch::Draw& draw, batch::ValueMap& row) const {
  Scratch& memory = scratch();
  std::int64_t index = draw.index;
  for (int replaced = 0;; ++replaced) {
    try {
      return fill_measured(index, draw, row, memory);
    } catch (const DataError& error) {
      if (!errors_) throw;
      errors_->add({store_->name(index), error.what()});
      if (replaced == kMaxReplacements) {
        throw DataError(
            "none of " + std::to_string(kMaxReplacements) +
            " samples in a row can be read, so that there is no replacement; the last one: " + error.what());
      }
      index = (index + 1) % size();
    }
  }
}

void ImageDataset::fill_measured(std::int64_t index, const batch::Draw& draw, batch::ValueMap& row,
                                 Scratch& memory) const {
  memory.workspace.times = nullptr;
  if (memory.samples++ % kMeasuredEvery != kFirstMeasured) return fill_from(index, draw, row, memory);
  LoadTimes& times = memory.times;
  times = {.samples = 1};
  memory.workspace.times = &times;
  const auto start = Clock::now();
  fill_from(index, draw, row, memory);
  times.transform_seconds = seconds_since(start) - times.read_seconds - times.decode_seconds;
  const auto add = [this](std::size_t i, double seconds) { times_[i] += static_cast<std::int64_t>(seconds * 1e9); };
  times_[0] += times.samples;
  add(1, times.read_seconds);
  add(2, times.decode_seconds);
  add(3, times.transform_seconds);
}

LoadTimes ImageDataset::load_times() const {
  const auto seconds = [this](std::size_t i) { return static_cast<double>(times_[i]) * 1e-9; };
  return {
      .samples = times_[0], .read_seconds = seconds(1), .decode_seconds = seconds(2), .transform_seconds = seconds(3)};
}

void ImageDataset::fill_from(std::int64_t index, const batch::Draw& draw, batch::ValueMap& row, Scratch& memory) const {
  LoadTimes* const times = memory.workspace.times;
  const auto start = times != nullptr ? Clock::now() : Clock::time_point();
  const StoredImage stored = store_->read(index, memory.buffer);  // its errors contain the path
  if (times != nullptr) times->read_seconds += seconds_since(start);
  for (int crop = 0; crop < pipeline_.crops(); ++crop) {
    const auto& tensor = row.at(layout_.fields[static_cast<std::size_t>(crop)].name).as<at::Tensor>();
    with_place(*store_, index, [&] { fill_image(stored, draw, crop, tensor, memory); });
  }
  fill_label(index, row.at("label").as<at::Tensor>(), memory);
  if (!task_.has_weights) return;
  *row.at("weight").as<at::Tensor>().mutable_data_ptr<float>() = static_cast<float>(store_->target(index).weight);
}

void ImageDataset::fill_image(const StoredImage& stored, const batch::Draw& draw, int crop, const at::Tensor& tensor,
                              Scratch& memory) const {
  Workspace& workspace = memory.workspace;
  const Image& image = workspace.patch.image;
  const auto count = static_cast<std::size_t>(tensor.numel());
  const bool has_planes = tensor.is_contiguous();
  const bool has_pixels = has_adjacent_channels(tensor);
  pipeline_.run_pixels(stored, draw, workspace, crop);
  check_size(crop, image.size());
  if (tensor.scalar_type() == at::kByte) {
    if (has_pixels) {
      std::memcpy(tensor.mutable_data_ptr<std::uint8_t>(), image.pixels.data(), count);
    } else {
      auto* const bytes = const_cast<std::uint8_t*>(image.pixels.data());
      tensor.copy_(at::from_blob(bytes, {image.height, image.width, image.channels}, at::kByte).permute({2, 0, 1}));
    }
    return;
  }
  if (has_pixels && pipeline_.float_transform().empty()) {
    return pipeline_.write_channels_last({tensor.mutable_data_ptr<float>(), count}, workspace);
  }
  if (!has_planes) memory.values.resize(count);
  float* const out = has_planes ? tensor.mutable_data_ptr<float>() : memory.values.data();
  pipeline_.write_planes({out, count}, workspace);
  if (!has_planes) tensor.copy_(at::from_blob(memory.values.data(), tensor.sizes()));  // it has another layout
}

void ImageDataset::check_size(int crop, ImageSize size) const {
  const ImageSize wanted = sizes_[static_cast<std::size_t>(crop)];
  if (size == wanted) return;
  throw DataError("the transformed image has " + size_text(size) + " pixels (height x width), but " +
                  size_text(wanted) +
                  " are required, because all images must have one size; add resize and center_crop to " +
                  pipeline_.options().key + ", for example");
}

void ImageDataset::fill_label(std::int64_t index, const at::Tensor& label, Scratch& memory) const {
  const TargetKind targets = store_->facts().targets;
  if (targets == TargetKind::masks) return fill_mask(index, label, memory);
  if (targets == TargetKind::label_sets) {
    auto* const values = label.mutable_data_ptr<float>();
    std::fill_n(values, label.numel(), 0.0F);
    for (const std::int64_t c : store_->target(index).classes) values[c] = 1;
  } else if (targets == TargetKind::numbers) {
    const std::vector<double> numbers = store_->target(index).numbers;
    if (std::ssize(numbers) != label.numel()) {
      throw DataError(store_->place(index), "has " + std::to_string(numbers.size()) + " numbers as its target, not " +
                                                std::to_string(label.numel()));
    }
    std::ranges::transform(numbers, label.mutable_data_ptr<float>(), [](double x) { return static_cast<float>(x); });
  } else {
    const bool has_class = targets == TargetKind::classes;
    *label.mutable_data_ptr<std::int64_t>() = has_class ? store_->target(index).classes.front() : kIgnored;
  }
}

void ImageDataset::fill_mask(std::int64_t index, const at::Tensor& label, Scratch& memory) const {
  const ImageStore& masks = *store_->facts().masks;
  const StoredImage stored = masks.read(index, memory.buffer);  // its errors contain the path
  with_place(masks, index, [&] { pipeline_.run_mask(stored, task_.classes, memory.workspace); });
  auto* const values = label.mutable_data_ptr<std::int64_t>();
  std::transform(memory.workspace.mask.pixels.begin(), memory.workspace.mask.pixels.end(), values,
                 [](std::uint8_t pixel) { return pixel == kIgnoredPixel ? kIgnored : std::int64_t{pixel}; });
}

void ImageDataset::read_ahead(const batch::Draw& draw) const {
  const StoreFacts& facts = store_->facts();
  if (facts.has_files) read_file_ahead(store_->place(draw.index));
  if (facts.masks && facts.masks->facts().has_files) read_file_ahead(facts.masks->place(draw.index));
}

std::uint64_t ImageDataset::digest() const {
  std::uint64_t digest = store_->digest();
  for (const int value : pipeline_.options().mask_values) digest = hash_of({digest, static_cast<std::uint64_t>(value)});
  return digest;
}

std::vector<std::int64_t> ImageDataset::labels() const {
  const TargetKind kind = store_->facts().targets;
  if (kind != TargetKind::classes && kind != TargetKind::none) {
    throw DataError("the samples do not have one class each; choose another data.sampler");
  }
  std::vector<std::int64_t> labels(static_cast<std::size_t>(size()), kIgnored);
  if (kind == TargetKind::none) return labels;
  for (std::size_t i = 0; i < labels.size(); ++i)
    labels[i] = store_->target(static_cast<std::int64_t>(i)).classes.front();
  return labels;
}

std::vector<std::int64_t> ImageDataset::chunks() const {
  std::vector<std::int64_t> chunks;
  for (std::int64_t i = 0; i < size(); ++i) {
    const auto chunk = chunk_in(*store_, i);
    if (!chunk) return {};
    chunks.push_back(*chunk);
  }
  return chunks;
}

ChunkBytes ImageDataset::chunk_bytes() const { return bytes_of_chunks(); }

std::vector<double> ImageDataset::aspect_ratios() const {
  std::vector<double> ratios;
  if (store_->facts().shape) {
    ratios.assign(static_cast<std::size_t>(size()), static_cast<double>(sizes_[0].width) / sizes_[0].height);
    return ratios;
  }
  Scratch& memory = scratch();
  for (std::int64_t index = 0; index < size(); ++index) {
    try {
      const StoredImage stored = store_->read(index, memory.buffer);
      with_place(*store_, index, [&] {
        const ImageSize size = read_image_header(stored.file, max_bytes_).size();
        ratios.push_back(static_cast<double>(size.width) / size.height);
      });
    } catch (const DataError&) {
      if (!errors_) throw;
      ratios.push_back(1);
    }
  }
  return ratios;
}

}  // namespace lockstep::data
