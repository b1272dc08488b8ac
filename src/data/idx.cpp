// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <ATen/ops/empty.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "data/pixels.hpp"
#include "data/source/hash.hpp"
#include "data/source/sources.hpp"

namespace lockstep::data {

namespace {

/// An IDX file of bytes: two zero bytes, the type 8 (unsigned byte), the number of dimensions, each dimension as a
/// big-endian 32-bit number, then the bytes, the last dimension running fastest.
/// Source: Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits", section "File formats".
struct IdxArray {
  std::vector<std::int64_t> shape;  ///< no dimension is 0
  std::vector<std::uint8_t> bytes;
};

/// Such as "60000 x 28 x 28".
std::string words_of(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t size : shape) text += (text.empty() ? "" : " x ") + std::to_string(size);
  return text;
}

constexpr std::uint8_t kUnsignedByte = 8;
constexpr std::uint8_t kMaxDimensions = 4;
constexpr std::uint64_t kMaxExpansion = 1032;  // deflate expands n bytes to at most 1032 n

// The bytes of a file, decompressed where it is compressed (zlib finds out by itself).
class ByteReader {
 public:
  explicit ByteReader(const std::string& path) : path_(path), file_(opened(path)) {
    if (file_ == nullptr) fail("cannot be opened (" + std::generic_category().message(errno) + ")");
    ::gzbuffer(file_, 1U << 17);
  }
  ~ByteReader() { ::gzclose_r(file_); }
  ByteReader(const ByteReader&) = delete;
  ByteReader& operator=(const ByteReader&) = delete;

  /// Fills `out` as far as the file reaches.
  /// @return  the number of bytes read
  std::size_t read(std::span<std::uint8_t> out) {
    std::size_t done = 0;
    while (done < out.size()) {
      const std::size_t wanted = std::min<std::size_t>(out.size() - done, std::numeric_limits<int>::max());
      const int got = ::gzread(file_, out.data() + done, static_cast<unsigned>(wanted));
      if (got < 0) fail("cannot be read (" + reason() + ")");
      if (got == 0) break;
      done += static_cast<std::size_t>(got);
    }
    return done;
  }

  bool ends_inside_compression() const {
    int code = 0;
    ::gzerror(file_, &code);
    return code == Z_BUF_ERROR;
  }

  bool is_compressed() { return ::gzdirect(file_) == 0; }

  [[noreturn]] void fail(const std::string& what) const { throw DataError(path_, what); }

 private:
  /// Opening a pipe would wait for its writer.
  static gzFile opened(const std::string& path) {
    std::error_code unknown;
    const auto type = std::filesystem::status(path, unknown).type();
    const bool is_other = type != std::filesystem::file_type::regular && type != std::filesystem::file_type::not_found;
    if (!unknown && is_other) throw DataError(path, "is not a regular file; check data.path");
    return ::gzopen(path.c_str(), "rbe");
  }

  std::string reason() const {
    int code = 0;
    const std::string text = ::gzerror(file_, &code);
    if (code == Z_ERRNO) return std::generic_category().message(errno);
    const std::string prefix = path_ + ": ";  // zlib puts the name in front
    return text.rfind(prefix, 0) == 0 ? text.substr(prefix.size()) : text;
  }

  std::string path_;
  gzFile file_;
};

std::vector<std::int64_t> read_shape(ByteReader& file) {
  std::array<std::uint8_t, 4> magic{};
  if (file.read(magic) < magic.size()) file.fail("is shorter than the header of an IDX file");
  if (magic[0] != 0 || magic[1] != 0) file.fail("is not an IDX file: it does not start with two zero bytes");
  if (magic[2] != kUnsignedByte) {
    file.fail("contains elements of IDX type " + std::to_string(magic[2]) +
              "; only type 8, unsigned byte, is supported");
  }
  if (magic[3] < 1 || magic[3] > kMaxDimensions) {
    file.fail("has " + std::to_string(magic[3]) + " dimensions; 1 to 4 are supported");
  }
  std::vector<std::int64_t> shape(magic[3]);
  for (std::int64_t& size : shape) {
    std::array<std::uint8_t, 4> big_endian{};
    if (file.read(big_endian) < big_endian.size()) file.fail("is shorter than the header of an IDX file");
    for (const std::uint8_t byte : big_endian) size = size << 8 | byte;
  }
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) file.fail("is empty: its shape is " + words_of(shape));
  return shape;
}

// The length that a shape promises, refused before memory is requested when a file of this length cannot hold it.
std::size_t promised_bytes(ByteReader& file, const std::vector<std::int64_t>& shape, std::uint64_t file_size) {
  const std::uint64_t limit = file.is_compressed() ? file_size * kMaxExpansion : file_size;
  std::uint64_t count = 1;
  for (const std::int64_t size : shape) {
    if (static_cast<std::uint64_t>(size) > limit / count) {
      file.fail("is truncated: its header states " + words_of(shape) + " bytes, more than a compressed file of " +
                std::to_string(file_size) + " bytes can hold");
    }
    count *= static_cast<std::uint64_t>(size);
  }
  return static_cast<std::size_t>(count);
}

/// Reads an IDX file, plain or compressed by gzip.
/// @throws DataError  it cannot be read, is no such file, or does not hold exactly what its header says
IdxArray read_idx(const std::string& path) {
  ByteReader file(path);
  std::error_code unknown;
  const std::uint64_t file_size = std::filesystem::file_size(path, unknown);
  if (unknown) file.fail("cannot be examined (" + unknown.message() + ")");
  IdxArray array{.shape = read_shape(file), .bytes = {}};
  array.bytes.resize(promised_bytes(file, array.shape, file_size));
  const std::size_t present = file.read(array.bytes);
  if (present < array.bytes.size()) {
    file.fail("is truncated: its header states " + words_of(array.shape) + " bytes, but only " +
              std::to_string(present) + " follow");
  }
  // Asking for one byte more also makes zlib compare its checksum.
  std::array<std::uint8_t, 1> more{};
  if (file.read(more) != 0)
    file.fail("is longer than its header states: there are data after the " + words_of(array.shape));
  if (file.ends_inside_compression()) file.fail("is truncated: its compressed stream has no end");
  return array;
}

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
      .keys = undivided_image_keys(),
      .open = open_idx,
      .open_images = open_idx_images,
      .normalize = "normalize,mean=0.1307,std=0.3081"};
}

}  // namespace lockstep::data
