// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/data/image.hpp>
#include <lockstep/random/random.hpp>

#include <algorithm>
#include <cstring>
#include <memory>

#include "data/source/hash.hpp"
#include "data/source/sources.hpp"

namespace lockstep::data {

namespace {

constexpr std::int64_t kDefaultClasses = 10;

enum class SyntheticKind { constant, noise, learnable };

/// Words of random bits for the pixels of an image or of a class.
class RandomBytes {
 public:
  RandomBytes(std::uint64_t seed, std::uint64_t purpose, std::uint64_t number)
      : key_{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32) ^ 0x53594E54U},
        counter_{0, static_cast<std::uint32_t>(purpose), static_cast<std::uint32_t>(number),
                 static_cast<std::uint32_t>(number >> 32)} {}

  void fill(std::uint8_t* out, std::size_t count) {
    for (std::size_t begin = 0; begin < count; begin += sizeof(words_)) {
      words_ = random::philox(counter_, key_);
      ++counter_[0];
      std::memcpy(out + begin, words_.data(), std::min(sizeof(words_), count - begin));
    }
  }

 private:
  std::array<std::uint32_t, 2> key_;
  std::array<std::uint32_t, 4> counter_;
  std::array<std::uint32_t, 4> words_{};
};

class SyntheticStore : public ImageStore {
 public:
  /// Images with consecutive numbers.
  struct Range {
    std::int64_t first = 0;
    std::int64_t size = 0;
    std::int64_t classes = 0;
  };

  SyntheticStore(SyntheticKind kind, const Range& range, PixelShape shape, std::uint64_t seed)
      : kind_(kind),
        first_(range.first),
        shape_(shape),
        seed_(seed),
        facts_{.size = range.size, .classes = range.classes, .shape = shape} {}

  const StoreFacts& facts() const override { return facts_; }
  StoredImage read(std::int64_t index, ReadBuffer& buffer) const override {
    const std::size_t count = pixel_count();
    const std::size_t needed = kind_ == SyntheticKind::learnable ? 2 * count : count;
    if (buffer.bytes.size() < needed) buffer.bytes.resize(needed);
    auto* const pixels = reinterpret_cast<std::uint8_t*>(buffer.bytes.data());
    const std::int64_t image = kind_ == SyntheticKind::constant ? 0 : first_ + index;
    RandomBytes(seed_, 0, static_cast<std::uint64_t>(image)).fill(pixels, count);
    if (kind_ == SyntheticKind::learnable) {
      std::uint8_t* const pattern = pixels + count;
      RandomBytes(seed_, 1, static_cast<std::uint64_t>(class_of(index))).fill(pattern, count);
      // One part of the pattern of the class and three parts of noise.
      for (std::size_t i = 0; i < count; ++i) {
        pixels[i] = static_cast<std::uint8_t>((unsigned{pattern[i]} + 3U * pixels[i]) / 4);
      }
    }
    return {.pixels = {pixels, count}, .shape = shape_};
  }
  ImageTarget target(std::int64_t index) const override { return {.classes = {class_of(index)}}; }
  std::string name(std::int64_t index) const override { return std::to_string(index); }
  std::string place(std::int64_t index) const override { return "synthetic image " + std::to_string(index); }
  std::uint64_t digest() const override {
    const std::uint64_t digest =
        hash_of({static_cast<std::uint64_t>(kind_), pixel_count(), static_cast<std::uint64_t>(shape_.height),
                 static_cast<std::uint64_t>(facts_.size), static_cast<std::uint64_t>(facts_.classes), seed_});
    return first_ == 0 ? digest : hash_of({digest, static_cast<std::uint64_t>(first_)});
  }

 private:
  std::int64_t class_of(std::int64_t index) const { return (first_ + index) % facts_.classes; }
  std::size_t pixel_count() const {
    return static_cast<std::size_t>(shape_.height) * static_cast<std::size_t>(shape_.width) *
           static_cast<std::size_t>(shape_.channels);
  }

  SyntheticKind kind_;
  std::int64_t first_;
  PixelShape shape_;
  std::uint64_t seed_;
  StoreFacts facts_;
};

/// data.shape, "channels,height,width".
PixelShape shape_of(const Section& data) {
  const std::vector<std::int64_t> shape = data.integers("shape");
  if (shape.size() != 3 || (shape[0] != 1 && shape[0] != 3)) {
    throw ConfigError(data.cite("shape") + " must be CHANNELS,HEIGHT,WIDTH with 1 or 3 channels, such as 3,224,224");
  }
  return {.height = static_cast<int>(shape[1]),
          .width = static_cast<int>(shape[2]),
          .channels = static_cast<int>(shape[0])};
}

ImageSplits open_synthetic(const Section& data) {
  const std::string& word = data.text("synthetic");
  const SyntheticKind kind = word == "constant" ? SyntheticKind::constant
                             : word == "noise"  ? SyntheticKind::noise
                                                : SyntheticKind::learnable;
  const std::int64_t classes = data.integer("classes") > 0 ? data.integer("classes") : kDefaultClasses;
  const auto store = [&](std::int64_t first, std::int64_t size) {
    return std::make_shared<SyntheticStore>(kind,
                                            SyntheticStore::Range{.first = first, .size = size, .classes = classes},
                                            shape_of(data), static_cast<std::uint64_t>(data.integer("seed")));
  };
  const std::int64_t size = data.integer("size");
  const bool has_fraction = data.real("val_fraction") > 0;
  return {.train = store(0, size),
          .val = has_fraction ? nullptr : store(size, data.integer("val_size")),
          .notes = {"synthetic data (" + word + "): accuracies say nothing about real data"}};
}

}  // namespace

Source synthetic_source() {
  const KeySpecs own = {
      keys::integers("data.shape", "3,224,224", "synthetic: channels, height and width of the images", 1, 1 << 14),
      keys::integer("data.size", "1281167", "synthetic: number of training images", 1),
      val_size_key("1000"),
      val_fraction_key("0"),
      keys::choice("data.synthetic", "learnable",
                   "synthetic: the same pixels for all images (constant), noise, or a pattern per class with noise "
                   "(learnable)",
                   {"constant", "noise", "learnable"}),
      keys::integer("data.seed", "0", "digits, synthetic: seed of the generated images", 0)};
  return {.name = "synthetic",
          .help = "Generated images of any size, for measurements without files",
          .keys = with_image_keys(own),
          .open_images = open_synthetic};
}

}  // namespace lockstep::data
