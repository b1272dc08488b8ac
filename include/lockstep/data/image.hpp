// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::data {

/// Memory for numbers that grows and never shrinks. New elements have arbitrary values. Vector instructions can read
/// kSlack bytes before the first element and beyond the last one.
template <class T>
class Buffer {
 public:
  static constexpr std::size_t kSlack = 64;

  Buffer() = default;
  Buffer(const Buffer& other) { *this = other; }
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(const Buffer& other) {
    if (this == &other) return *this;
    resize(other.size_);
    if (size_ > 0) std::memcpy(data(), other.data(), size_ * sizeof(T));
    return *this;
  }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Buffer() = default;

  /// Keeps the elements only where the memory does not have to grow.
  void resize(std::size_t size) {
    if (size > capacity_) {
      storage_ = std::make_unique_for_overwrite<std::byte[]>(size * sizeof(T) + 2 * kSlack);
      capacity_ = size;
    }
    size_ = size;
  }
  void swap(Buffer& other) noexcept {
    std::swap(storage_, other.storage_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }

  std::size_t size() const noexcept { return size_; }
  T* data() noexcept { return storage_ ? reinterpret_cast<T*>(storage_.get() + kSlack) : nullptr; }
  const T* data() const noexcept { return storage_ ? reinterpret_cast<const T*>(storage_.get() + kSlack) : nullptr; }
  T& operator[](std::size_t i) noexcept { return data()[i]; }
  const T& operator[](std::size_t i) const noexcept { return data()[i]; }
  T* begin() noexcept { return data(); }
  T* end() noexcept { return data() + size_; }
  const T* begin() const noexcept { return data(); }
  const T* end() const noexcept { return data() + size_; }

 private:
  std::unique_ptr<std::byte[]> storage_;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

struct ImageSize {
  int height = 0;
  int width = 0;

  bool operator==(const ImageSize&) const = default;
};

/// A rectangle of pixels of an image.
struct Box {
  int top = 0;
  int left = 0;
  int height = 0;
  int width = 0;

  ImageSize size() const noexcept { return {height, width}; }
  bool operator==(const Box&) const = default;
};

/// The box of all pixels of an image.
inline Box whole(ImageSize size) { return {0, 0, size.height, size.width}; }

/// Pixels of an image: height x width x channels bytes, row by row.
struct Image {
  int height = 0;
  int width = 0;
  int channels = 0;
  Buffer<std::uint8_t> pixels;

  ImageSize size() const noexcept { return {height, width}; }
  /// Bytes from a row to the next.
  std::size_t stride() const noexcept { return static_cast<std::size_t>(width) * static_cast<std::size_t>(channels); }
  std::uint8_t* row(int y) noexcept { return pixels.data() + static_cast<std::size_t>(y) * stride(); }
  const std::uint8_t* row(int y) const noexcept { return pixels.data() + static_cast<std::size_t>(y) * stride(); }
  /// Changes the shape; the pixels are arbitrary afterward.
  void reshape(ImageSize size, int channel_count) {
    height = size.height;
    width = size.width;
    channels = channel_count;
    pixels.resize(static_cast<std::size_t>(height) * stride());
  }
  void swap(Image& other) noexcept {
    std::swap(height, other.height);
    std::swap(width, other.width);
    std::swap(channels, other.channels);
    pixels.swap(other.pixels);
  }
};

/// Times of samples that were loaded. One of 64 samples is measured.
struct LoadTimes {
  std::int64_t samples = 0;      ///< that were measured
  double read_seconds = 0;       ///< reading stored bytes
  double decode_seconds = 0;     ///< reading the header and decoding
  double transform_seconds = 0;  ///< transforms, and writing to the batch

  double seconds() const { return read_seconds + decode_seconds + transform_seconds; }
  /// The times between an earlier state of the same counters and this one.
  LoadTimes since(const LoadTimes& before) const {
    return {samples - before.samples, read_seconds - before.read_seconds, decode_seconds - before.decode_seconds,
            transform_seconds - before.transform_seconds};
  }
};

/// Height, width and channels of decoded pixels.
struct PixelShape {
  int height = 0;
  int width = 0;
  int channels = 0;

  bool operator==(const PixelShape&) const = default;
};

/// One image as a store holds it: either the bytes of an encoded file, or decoded pixels.
struct StoredImage {
  std::span<const std::byte> file = {};       ///< bytes of an encoded file (JPEG, PNG, ...); empty = `pixels` are given
  std::span<const std::uint8_t> pixels = {};  ///< height x width x channels bytes, row by row
  PixelShape shape = {};                      ///< shape of `pixels`
};

/// Memory that a thread reuses for the images that it reads.
struct ReadBuffer {
  std::vector<std::byte> bytes;
};

/// The kind of the targets of a store.
enum class TargetKind {
  classes,     ///< every image has one class
  label_sets,  ///< every image has any number of classes
  numbers,     ///< every image has StoreFacts::numbers real numbers
  masks,       ///< every image has an image of the same size, which contains the class of each pixel
  none         ///< images have no targets
};

/// The target of an image, except for masks.
struct ImageTarget {
  std::vector<std::int64_t> classes = {};  ///< each in [0, StoreFacts::classes); one for TargetKind::classes
  std::vector<double> numbers = {};        ///< StoreFacts::numbers of them for TargetKind::numbers
  double weight = 1;                       ///< weight of the image in the loss, with StoreFacts::has_weights
};

class ImageStore;

/// Facts about all images of a store.
struct StoreFacts {
  std::int64_t size = 0;  ///< number of images
  TargetKind targets = TargetKind::classes;
  std::int64_t classes = 0;                   ///< number of classes; 0 where the targets are not classes
  std::vector<std::string> class_names = {};  ///< the name of each class; empty if the classes have none
  std::int64_t numbers = 1;                   ///< numbers of a target, for TargetKind::numbers
  bool has_weights = false;                   ///< images have ImageTarget::weight
  /// The shape of every image, where all have the same one and are stored as pixels.
  std::optional<PixelShape> shape = {};
  /// The masks of the images, with the same indices, for TargetKind::masks: PNG or PGM files with one channel.
  std::shared_ptr<const ImageStore> masks = nullptr;
  bool has_files = false;  ///< ImageStore::place is the path of the file that `read` reads; the loader reads it ahead
};

/// A finite, indexed set of images, without decoding and without transforms. All members must be thread-safe.
class ImageStore {
 public:
  virtual ~ImageStore() = default;
  /// The same in each call.
  virtual const StoreFacts& facts() const = 0;
  /// @param index   in [0, size())
  /// @param buffer  can hold the result, which is valid until the next call with the same buffer
  /// @throws DataError  the image cannot be read
  virtual StoredImage read(std::int64_t index, ReadBuffer& buffer) const = 0;
  virtual ImageTarget target(std::int64_t index) const = 0;
  /// The name of an image in messages, predictions and lists: its path below the root of the data, for example.
  virtual std::string name(std::int64_t index) const = 0;
  /// The position of an image in messages: the path of its file, for example. By default, its name.
  virtual std::string place(std::int64_t index) const { return name(index); }
  /// A digest of sizes, names, targets and samples of the content.
  virtual std::uint64_t digest() const = 0;

  std::int64_t size() const { return facts().size; }
};

/// The splits of a source of images; null = the source does not have this split.
struct ImageSplits {
  std::shared_ptr<const ImageStore> train;
  std::shared_ptr<const ImageStore> val = nullptr;
  std::shared_ptr<const ImageStore> test = nullptr;
  std::vector<std::string> notes = {};  ///< remarks for the log
  bool is_one_part = true;  ///< a source without val and test is divided; false = it has them, but they are not used
};

}  // namespace lockstep::data
