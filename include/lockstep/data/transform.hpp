// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/data/image.hpp>
#include <lockstep/random/random.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

namespace lockstep::data {

/// The parameters that a transform draws for one sample: a plain struct that is stored in place.
class Parameters {
 public:
  static constexpr std::size_t kMaxBytes = 512;

  Parameters() = default;
  template <class T>
  requires(!std::is_same_v<T, Parameters>) Parameters(const T& values) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= kMaxBytes);
    std::memcpy(bytes_.data(), &values, sizeof(T));
  }
  /// The struct of which these parameters were made.
  template <class T>
  T as() const {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= kMaxBytes);
    T values;
    std::memcpy(&values, bytes_.data(), sizeof(T));
    return values;
  }

 private:
  alignas(16) std::array<std::byte, kMaxBytes> bytes_;
};

/// A part of an image.
struct Patch {
  Image image;     ///< the pixels of `area`
  Box area;        ///< position of `image` in the full image
  ImageSize full;  ///< size of the full image
};

/// Float32 values of an image: channels x height x width, with a contiguous plane for each channel.
struct FloatImage {
  float* values = nullptr;
  int channels = 0;
  ImageSize size = {};

  std::size_t plane() const noexcept {
    return static_cast<std::size_t>(size.height) * static_cast<std::size_t>(size.width);
  }
};

/// The value of each byte of each channel.
using ByteTable = std::vector<std::array<float, 256>>;

/// Memory that one thread reuses, so that no sample after the first needs new memory.
struct Workspace {
  Workspace();
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  Patch patch;                    ///< the image that is transformed
  Image spare;                    ///< output of a transform, which swaps it with its input
  Image mask;                     ///< the mask of the image, if it has one
  ImageSize mask_size;            ///< required size of the mask before the first transform
  Parameters first_drawn;         ///< parameters of the first transform for the mask
  Buffer<std::uint8_t> rows;      ///< rows of pixels
  Buffer<std::int32_t> weights;   ///< weights of a filter
  Buffer<float> numbers;          ///< float rows of a filter
  std::vector<Parameters> drawn;  ///< parameters of each transform
  std::vector<ImageSize> sizes;   ///< size before each transform, and after the last one
  std::vector<Box> parts;         ///< part of each of these images that is used
  LoadTimes* times = nullptr;     ///< receives the time of decoding; null = it is not measured
  struct Decoders;
  std::unique_ptr<Decoders> decoders;  ///< state of the decoding libraries
};

/// A change of one image: a PixelTransform, a TensorTransform or a MultiCropTransform. `draw` draws its parameters, and
/// `apply` applies them, so that the same parameters give the same result anywhere. All members must be thread-safe.
///
/// Sizes are known before the pixels: all parameters of a sample are drawn before its image is decoded.
class Transform {
 public:
  virtual ~Transform() = default;
  /// Draws the parameters for an image of this size. By default, there are none.
  /// @throws DataError  the transform does not accept images of this size; the caller adds the name of the image
  virtual Parameters draw(random::Sequence&, ImageSize) const { return {}; }
  /// The parameters for people, such as "top=3, left=5"; empty if nothing was drawn.
  virtual std::string text(const Parameters&) const { return ""; }
};

/// A transform of stage `pixels`. It can also be a MaskTransform, a PartTransform or a ReducedTransform.
class PixelTransform : public Transform {
 public:
  virtual void apply(Image&, const Parameters&, Workspace&) const = 0;
  /// The size of the result. By default, the size does not change.
  virtual ImageSize size_after(ImageSize before, const Parameters&) const { return before; }
  /// The size of every result, where it is known in advance.
  /// @param before  the size of every input, where it is known
  virtual std::optional<ImageSize> fixed_size(std::optional<ImageSize> before) const { return before; }
};

/// A PixelTransform that moves pixels, and can be used for images with masks. Required for MaskUse::moved.
class MaskTransform {
 public:
  virtual ~MaskTransform() = default;
  /// Moves the pixels of a mask as `apply` moves those of the image: one channel of class numbers, which are not mixed.
  /// Pixels from outside the image are kIgnoredPixel.
  virtual void apply_to_mask(Image&, const Parameters&, Workspace&) const = 0;
};

/// A PixelTransform that is faster when only a part of its result is used.
class PartTransform {
 public:
  virtual ~PartTransform() = default;
  /// The part of the input that is required for this part of the output.
  virtual Box part_before(const Box& part, ImageSize before, const Parameters& drawn) const = 0;
  /// Replaces the part of the input by this part of the output.
  /// @param patch  contains exactly part_before(part, ...)
  virtual void apply_part(Patch& patch, const Box& part, const Parameters& drawn, Workspace& workspace) const = 0;
};

/// A PixelTransform that accepts an image that is reduced beforehand, if results need not be exact.
class ReducedTransform {
 public:
  virtual ~ReducedTransform() = default;
  /// The factor (1, 2, 4 or 8) by which the input can be reduced.
  virtual int max_reduction(ImageSize before, const Parameters& drawn) const = 0;
  /// The parameters for an input that is reduced to another size.
  virtual Parameters reduced(const Parameters& drawn, ImageSize from, ImageSize target) const = 0;
};

/// A transform of stage `tensor`. It can also be a ByteTransform.
class TensorTransform : public Transform {
 public:
  virtual void apply(FloatImage, const Parameters&) const = 0;
};

/// A TensorTransform whose values depend on the pixels' bytes only, each on one byte, which is faster.
class ByteTransform {
 public:
  virtual ~ByteTransform() = default;
  virtual ByteTable byte_table() const = 0;
};

/// A transform of stage `crops`: several images of one sample.
class MultiCropTransform : public Transform {
 public:
  virtual int crops() const = 0;  ///< number of images per sample
  /// The transform that produces image i.
  virtual const PixelTransform& crop(int i) const = 0;
};

/// Mean and standard deviation of each channel, for pixels in [0, 1].
struct ChannelStatistics {
  std::vector<double> mean;
  std::vector<double> std;

  bool operator==(const ChannelStatistics&) const = default;
};

/// The mean and standard deviation of ImageNet.
const ChannelStatistics& imagenet_statistics();

/// The value of mask pixels that losses and metrics ignore.
inline constexpr std::uint8_t kIgnoredPixel = 255;

/// Facts for the makers of transforms.
struct TransformContext {
  int channels = 3;              ///< 1 or 3
  ChannelStatistics statistics;  ///< those of the `normalize` line, or of ImageNet
};

enum class TransformStage {
  pixels,  ///< bytes, height x width x channels
  tensor,  ///< float32, channels x height x width; the lines after it are tensor transforms too
  crops,   ///< several images of one sample; each runs through the remaining lines
};

/// The use of a transform for images with masks.
enum class MaskUse {
  refused,    ///< the transform does not accept masks
  unchanged,  ///< it changes colors only
  moved       ///< it moves pixels, and is a MaskTransform
};

/// A row of the table of transforms. A program can append rows to engine::Registry::transforms.
struct TransformRow {
  std::string name;
  std::string help;
  KeySpecs keys;  ///< options of a line "name,key=value,..."
  TransformStage stage = TransformStage::pixels;
  bool is_random = false;            ///< draws parameters; not accepted in `data.val_transform`
  MaskUse masks = MaskUse::refused;  ///< transforms of stage `tensor` leave masks unchanged in any case
  /// Returns a transform of the kind that belongs to `stage`.
  /// @throws ConfigError  the options contradict each other; the caller adds the line
  std::function<std::unique_ptr<Transform>(const Section& options, const TransformContext& context)> make;
  std::vector<std::string> old_names = {};  ///< names in earlier versions
};

/// The built-in transforms, see docs/images.md.
const std::vector<TransformRow>& builtin_transforms();

}  // namespace lockstep::data
