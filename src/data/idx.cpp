// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include "data/idx_file.hpp"
#include "data/pixels.hpp"
#include "data/source/hash.hpp"
#include "data/source/sources.hpp"

namespace lockstep::data {

namespace {

constexpr PixelScale kMnistScale = {0.1307F, 0.3081F};  // mean and deviation of MNIST's training images

/// The smallest number of classes that data.classes = 0 stands for, because earlier versions assumed MNIST's.
constexpr std::int64_t kMinClasses = 10;

// Images of one channel (three dimensions in the file) or of several (four), held as bytes.
class Images : public Dataset, public SampleClasses {
 public:
  Images(IdxArray images, std::vector<std::uint8_t> labels, std::int64_t classes)
      : size_(images.shape.front()),
        sample_shape_(images.shape.begin() + 1, images.shape.end()),
        pixels_(std::move(images.bytes)),
        labels_(std::move(labels)),
        classes_(classes) {
    if (sample_shape_.size() == 2) sample_shape_.insert(sample_shape_.begin(), 1);
    sample_pixels_ = pixels_.size() / static_cast<std::size_t>(size_);
  }

  std::int64_t size() const override { return size_; }
  Task task() const override { return {.sample_shape = sample_shape_, .classes = classes_}; }

  batch::Batch get(std::span<const batch::Draw> draws) const override {
    check_indices(draws, size_);
    std::vector<std::int64_t> shape = {static_cast<std::int64_t>(draws.size())};
    const at::Tensor label = at::empty(shape, at::kLong);
    shape.insert(shape.end(), sample_shape_.begin(), sample_shape_.end());
    const at::Tensor data = at::empty(shape, at::kFloat);
    auto* pixels = data.mutable_data_ptr<float>();
    auto* labels = label.mutable_data_ptr<std::int64_t>();
    for (const batch::Draw& draw : draws) {
      const auto sample = static_cast<std::size_t>(draw.index);
      *labels++ = labels_[sample];
      scale_pixels(std::span(pixels_).subspan(sample * sample_pixels_, sample_pixels_), kMnistScale, pixels);
      pixels += sample_pixels_;
    }
    return {data, label};
  }

  std::vector<std::int64_t> labels() const override { return {labels_.begin(), labels_.end()}; }

  std::uint64_t digest() const override {
    return digest_.get([this] {
      std::uint64_t hash = hash_of({hash_of(pixels_), hash_of(labels_), static_cast<std::uint64_t>(classes_)});
      for (const std::int64_t size : sample_shape_) hash = hash_of({hash, static_cast<std::uint64_t>(size)});
      return hash;
    });
  }

 private:
  std::int64_t size_;
  std::vector<std::int64_t> sample_shape_;
  std::vector<std::uint8_t> pixels_;
  std::size_t sample_pixels_;
  std::vector<std::uint8_t> labels_;
  std::int64_t classes_;
  LazyDigest digest_;
};

// The file that is there under one of the names in use.
// @param stem  such as "train-images"
std::string find_file(const std::string& folder, const std::string& stem, const std::vector<std::string>& endings) {
  std::error_code unreadable;  // counts as missing
  for (const std::string& ending : endings) {
    for (const char* separator : {"-", "."}) {
      for (const char* compression : {"", ".gz"}) {
        const std::string path = folder + "/" + stem + separator + ending + compression;
        if (std::filesystem::exists(path, unreadable)) return path;
      }
    }
  }
  throw DataError(folder, "has no file " + stem + "-" + endings.front() +
                              "; data.path must be a folder with train-images-idx3-ubyte, train-labels-idx1-ubyte, "
                              "t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, each plain or with .gz");
}

/// The files of one split.
struct IdxSplit {
  IdxArray images;
  std::vector<std::uint8_t> labels;
};

/// @param classes  0 = unlimited
IdxSplit read_split(const std::string& folder, const std::string& split, std::int64_t classes) {
  const std::string image_path = find_file(folder, split + "-images", {"idx3-ubyte", "idx4-ubyte"});
  const std::string label_path = find_file(folder, split + "-labels", {"idx1-ubyte"});
  IdxArray images = read_idx(image_path);
  IdxArray labels = read_idx(label_path);
  if (images.shape.size() < 3) {
    throw DataError(image_path, "has " + std::to_string(images.shape.size()) +
                                    " dimensions; images need three (number, height, width) or four (number, channels, "
                                    "height, width)");
  }
  if (labels.shape.size() != 1) {
    throw DataError(label_path, "has " + std::to_string(labels.shape.size()) + " dimensions; labels need one");
  }
  if (images.shape.front() != labels.shape.front()) {
    throw DataError(label_path, "has " + std::to_string(labels.shape.front()) + " labels, but " + image_path + " has " +
                                    std::to_string(images.shape.front()) + " images");
  }
  const auto bad = std::find_if(labels.bytes.begin(), labels.bytes.end(),
                                [classes](auto label) { return classes > 0 && label >= classes; });
  if (bad != labels.bytes.end()) {
    throw DataError(label_path, "label " + std::to_string(*bad) + " at index " +
                                    std::to_string(bad - labels.bytes.begin()) + " is beyond data.classes = " +
                                    std::to_string(classes) + ", with labels 0 to " + std::to_string(classes - 1));
  }
  return {.images = std::move(images), .labels = std::move(labels.bytes)};
}

/// Both splits and their number of classes.
struct IdxSplits {
  IdxSplit train;
  std::optional<IdxSplit> val;  ///< empty = it is not used
  std::int64_t classes;
};

IdxSplits read_splits(const Section& data, const UsedSplits& used) {
  const std::string& folder = required_path(data, "a folder of IDX files");
  std::error_code unreadable;
  if (!std::filesystem::is_directory(folder, unreadable)) {
    throw DataError(folder,
                    "is not a folder; data.path must be a folder of IDX files, such as train-images-idx3-ubyte");
  }
  std::int64_t classes = data.integer("classes");
  IdxSplit train = read_split(folder, "train", classes);
  if (classes == 0) {
    const auto largest = *std::max_element(train.labels.begin(), train.labels.end());
    classes = std::max<std::int64_t>(kMinClasses, std::int64_t{largest} + 1);
  }
  IdxSplits splits{.train = std::move(train), .val = {}, .classes = classes};
  if (!used.val) return splits;
  IdxSplit val = read_split(folder, "t10k", classes);
  const auto sample_shape = [](const IdxSplit& split) {
    return std::vector<std::int64_t>(split.images.shape.begin() + 1, split.images.shape.end());
  };
  if (sample_shape(splits.train) != sample_shape(val)) {
    const auto text = [](std::vector<std::int64_t> shape) {
      if (shape.size() == 2) shape.insert(shape.begin(), 1);
      return words_of(shape);
    };
    throw DataError(folder, "its training images are " + text(sample_shape(splits.train)) +
                                " (channels x height x width), but those of t10k are " + text(sample_shape(val)));
  }
  splits.val = std::move(val);
  return splits;
}

Splits open_idx(const Section& data, const UsedSplits& used) {
  IdxSplits splits = read_splits(data, used);
  const auto dataset = [&](IdxSplit& split) {
    return std::make_shared<Images>(std::move(split.images), std::move(split.labels), splits.classes);
  };
  return {.train = dataset(splits.train), .val = splits.val ? dataset(*splits.val) : nullptr};
}

/// The images for a pipeline.
class IdxStore : public ImageStore {
 public:
  IdxStore(IdxSplit split, std::string name, std::int64_t classes) : split_(std::move(split)), name_(std::move(name)) {
    const std::vector<std::int64_t>& shape = split_.images.shape;
    const bool has_channels = shape.size() == 4;
    shape_ = {.height = static_cast<int>(shape[has_channels ? 2 : 1]),
              .width = static_cast<int>(shape[has_channels ? 3 : 2]),
              .channels = has_channels ? static_cast<int>(shape[1]) : 1};
    facts_ = {.size = shape.front(), .classes = classes, .shape = shape_};
    if (shape_.channels == 1 || shape_.channels == 3) return;
    throw DataError(name_ + " has " + std::to_string(shape_.channels) +
                    " channels per image, but transforms require 1 or 3; remove data.transform");
  }

  const StoreFacts& facts() const override { return facts_; }
  StoredImage read(std::int64_t index, ReadBuffer& buffer) const override {
    const std::size_t count = split_.images.bytes.size() / static_cast<std::size_t>(size());
    const std::span<const std::uint8_t> planes =
        std::span(split_.images.bytes).subspan(static_cast<std::size_t>(index) * count, count);
    if (shape_.channels == 1) return {.pixels = planes, .shape = shape_};
    if (buffer.bytes.size() < count) buffer.bytes.resize(count);
    auto* const pixels = reinterpret_cast<std::uint8_t*>(buffer.bytes.data());
    const auto channels = static_cast<std::size_t>(shape_.channels);
    for (std::size_t i = 0; i < count; ++i) pixels[i] = planes[i % channels * (count / channels) + i / channels];
    return {.pixels = {pixels, count}, .shape = shape_};
  }
  ImageTarget target(std::int64_t index) const override {
    return {.classes = {split_.labels[static_cast<std::size_t>(index)]}};
  }
  std::string name(std::int64_t index) const override { return name_ + ":" + std::to_string(index); }
  std::uint64_t digest() const override {
    return digest_.get([this] {
      return hash_of(
          {hash_of(split_.images.bytes), hash_of(split_.labels), static_cast<std::uint64_t>(facts_.classes)});
    });
  }

 private:
  IdxSplit split_;
  std::string name_;
  PixelShape shape_;
  StoreFacts facts_;
  LazyDigest digest_;
};

ImageSplits open_idx_images(const Section& data, const UsedSplits& used) {
  IdxSplits splits = read_splits(data, used);
  ImageSplits opened{.train = std::make_shared<IdxStore>(std::move(splits.train), "train-images", splits.classes),
                     .is_one_part = false};
  if (splits.val) opened.val = std::make_shared<IdxStore>(std::move(*splits.val), "t10k-images", splits.classes);
  return opened;
}

}  // namespace

Source idx_source() {
  return {
      .name = "idx",
      .help =
          "Images and labels from IDX files with the names of the MNIST files, plain or .gz, in the folder data.path",
      .keys = image_keys(),
      .open = open_idx,
      .open_images = open_idx_images,
      .normalise = "normalise,mean=0.1307,std=0.3081"};
}

}  // namespace lockstep::data
