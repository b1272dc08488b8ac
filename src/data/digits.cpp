// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/keys.hpp>

#include <ATen/ops/empty.h>

#include <algorithm>

#include "data/pixels.hpp"
#include "data/source/hash.hpp"
#include "data/source/sources.hpp"
#include "data/stroke_rasterizer.hpp"

namespace lockstep::data {

namespace {

constexpr std::int64_t kClasses = 10;
constexpr PixelScale kDigitScale = {0.115F, 0.236F};  // measured over the training split

// Images are drawn when they are requested: about ten microseconds each, no memory, nothing to wait for at the start.
class Digits : public Dataset, public SampleClasses {
 public:
  Digits(std::uint64_t seed, std::uint64_t split, std::int64_t size) : seed_(seed), split_(split), size_(size) {}

  std::int64_t size() const override { return size_; }

  Task task() const override { return {.sample_shape = {1, kDigitSide, kDigitSide}, .classes = kClasses}; }

  batch::Batch get(std::span<const batch::Draw> draws) const override {
    check_indices(draws, size_);
    const auto count = static_cast<std::int64_t>(draws.size());
    const at::Tensor data = at::empty({count, 1, kDigitSide, kDigitSide}, at::kFloat);
    const at::Tensor label = at::empty({count}, at::kLong);
    auto* pixels = data.mutable_data_ptr<float>();
    auto* labels = label.mutable_data_ptr<std::int64_t>();
    for (const batch::Draw& draw : draws) {
      *labels++ = digit_of(draw.index);
      scale_pixels(image(draw.index), kDigitScale, pixels);
      pixels += kDigitPixels;
    }
    return {data, label};
  }

  std::vector<std::int64_t> labels() const override {
    std::vector<std::int64_t> labels;
    for (std::int64_t index = 0; index < size_; ++index) labels.push_back(digit_of(index));
    return labels;
  }

  // A few images stand for all: they change with the glyphs and with the way of drawing.
  std::uint64_t digest() const override {
    std::uint64_t hash = hash_of({seed_, split_, static_cast<std::uint64_t>(size_)});
    for (std::int64_t index = 0; index < std::min(size_, 10 * kClasses); ++index)
      hash = hash_of({hash, hash_of(image(index))});
    return hash;
  }

 private:
  static int digit_of(std::int64_t index) { return static_cast<int>(index % kClasses); }
  DigitImage image(std::int64_t index) const {
    return draw_digit(digit_of(index), {seed_, split_, static_cast<std::uint64_t>(index)});
  }

  std::uint64_t seed_;
  std::uint64_t split_;
  std::int64_t size_;
};

Splits open_digits(const Section& data) {
  const auto seed = static_cast<std::uint64_t>(data.integer("seed"));
  return {.train = std::make_shared<Digits>(seed, 0, data.integer("train_size")),
          .val = std::make_shared<Digits>(seed, 1, data.integer("val_size"))};
}

}  // namespace

KeySpec val_size_key(const std::string& default_value) {
  return keys::renamed(
      keys::integer("data.val_size", default_value, "digits, synthetic: number of validation images", 1),
      "data.test_size");
}

Source digits_source() {
  return {
      .name = "digits",
      .help =
          "Synthetic images of handwritten-style digits, 28 x 28 pixels, generated on the fly; requires no download",
      .keys = {keys::integer("data.train_size", "12000", "digits: number of training images", 1), val_size_key("2000"),
               keys::integer("data.seed", "0", "digits, synthetic: seed of the generated images", 0)},
      .open = open_digits};
}

}  // namespace lockstep::data
