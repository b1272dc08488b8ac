// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep::data {

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
  numbers,     ///< every image has a real number
  masks,       ///< every image has an image of the same size, which contains the class of each pixel
  none         ///< images have no targets
};

/// A finite, indexed set of images, without decoding and without transforms. All members must be thread-safe.
class ImageStore {
 public:
  virtual ~ImageStore() = default;
  virtual std::int64_t size() const = 0;
  /// @param index   in [0, size())
  /// @param buffer  can hold the result, which is valid until the next call with the same buffer
  /// @throws DataError  the image cannot be read
  virtual StoredImage read(std::int64_t index, ReadBuffer& buffer) const = 0;
  virtual TargetKind target_kind() const { return TargetKind::classes; }
  /// The class of an image, in [0, classes()), where the targets are classes.
  virtual std::int64_t label(std::int64_t index) const = 0;
  /// The classes of an image. By default, its class.
  virtual std::vector<std::int64_t> labels(std::int64_t index) const { return {label(index)}; }
  /// The real number of an image, where the targets are numbers.
  virtual double number(std::int64_t) const { return 0; }
  /// The mask of an image, where the targets are masks: a PNG or PGM file with one channel.
  /// @throws DataError  it cannot be read, or the targets are not masks (the default)
  virtual StoredImage read_mask(std::int64_t index, ReadBuffer& buffer) const;
  /// The position of a mask in messages. By default, that of its image.
  virtual std::string mask_place(std::int64_t index) const { return place(index); }
  /// The name of an image in messages, predictions and lists: its path below the root of the data, for example.
  virtual std::string name(std::int64_t index) const = 0;
  /// The position of an image in messages: the path of its file, for example. By default, its name.
  virtual std::string place(std::int64_t index) const { return name(index); }
  /// The number of classes; 0 where the targets are not classes.
  virtual std::int64_t classes() const = 0;
  /// The name of each class; empty if the classes have none.
  virtual std::vector<std::string> class_names() const { return {}; }
  /// The shape of every image, where all have the same one and are stored as pixels.
  virtual std::optional<PixelShape> shape() const { return std::nullopt; }
  /// Requests that the system reads an image in advance. By default, it does nothing.
  virtual void read_ahead(std::int64_t) const {}
  /// A digest of sizes, names, labels and samples of the content.
  virtual std::uint64_t digest() const = 0;
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
