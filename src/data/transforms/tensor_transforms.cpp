// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <optional>
#include <utility>

#include "core/text/text.hpp"
#include "data/transforms/transforms.hpp"

namespace lockstep::data {

namespace {

class ToFloat : public TensorTransform, public ByteTransform {
 public:
  explicit ToFloat(int channels) : channels_(channels) {}

  void apply(FloatImage, const Parameters&) const override {}  // the values are float32 already
  ByteTable byte_table() const override { return fraction_table(channels_); }

 private:
  int channels_;
};

class Normalize : public TensorTransform, public ByteTransform {
 public:
  explicit Normalize(const ChannelStatistics& statistics) {
    for (const double mean : statistics.mean) mean_.push_back(static_cast<float>(mean));
    for (const double std : statistics.std) std_.push_back(static_cast<float>(std));
  }

  void apply(FloatImage image, const Parameters&) const override {
    for (std::size_t c = 0; c < mean_.size(); ++c) {
      float* const plane = image.values + c * image.plane();
      for (std::size_t i = 0; i < image.plane(); ++i) plane[i] = (plane[i] - mean_[c]) / std_[c];
    }
  }
  ByteTable byte_table() const override {
    ByteTable table(mean_.size());
    for (std::size_t c = 0; c < mean_.size(); ++c) {
      for (std::size_t v = 0; v < 256; ++v) {
        table[c][v] = (static_cast<float>(v) / 255.0F - mean_[c]) / std_[c];
      }
    }
    return table;
  }

 private:
  std::vector<float> mean_;
  std::vector<float> std_;
};

enum class EraseValue { zero, per_channel, per_pixel };

constexpr int kMaxErasedBoxes = 16;

struct ErasedBoxes {
  int count = 0;
  std::array<Box, kMaxErasedBoxes> boxes;
  std::uint64_t noise_key = 0;
};

/// Normal numbers for the erased boxes, two for each logarithm.
class Noise {
 public:
  explicit Noise(std::uint64_t key) : random_(key, random::Stream::augment, 0) {}

  float next() {
    if (second_) return *std::exchange(second_, std::nullopt);
    const double radius = std::sqrt(-2.0 * std::log(1.0 - random_.uniform()));
    const double angle = 2.0 * std::numbers::pi * random_.uniform();
    second_ = static_cast<float>(radius * std::sin(angle));
    return static_cast<float>(radius * std::cos(angle));
  }

 private:
  random::Sequence random_;
  std::optional<float> second_;
};

class RandomErasing : public TensorTransform {
 public:
  explicit RandomErasing(const Section& options)
      : probability_(options.real("p")),
        area_(range_option(options, "scale")),
        ratio_(range_option(options, "ratio")),
        value_(options.text("value") == "rand"    ? EraseValue::per_channel
               : options.text("value") == "pixel" ? EraseValue::per_pixel
                                                  : EraseValue::zero),
        count_(static_cast<int>(options.integer("count"))) {
    if (ratio_[0] <= 0) throw ConfigError("ratio must be positive");
  }

  Parameters draw(random::Sequence& random, ImageSize size) const override {
    ErasedBoxes drawn{};
    if (!coin(random, probability_)) return drawn;
    drawn.noise_key = random.next_bits();
    for (int i = 0; i < count_; ++i) {
      const auto box = draw_erasing(random, size, area_, ratio_, count_);
      if (box) drawn.boxes[static_cast<std::size_t>(drawn.count++)] = *box;
    }
    return drawn;
  }

  std::string text(const Parameters& drawn) const override {
    const auto erased = drawn.as<ErasedBoxes>();
    std::vector<std::string> texts;
    for (int i = 0; i < erased.count; ++i) {
      const Box& box = erased.boxes[static_cast<std::size_t>(i)];
      texts.push_back("top=" + std::to_string(box.top) + " left=" + std::to_string(box.left) +
                      " height=" + std::to_string(box.height) + " width=" + std::to_string(box.width));
    }
    return joined(texts);
  }

  void apply(FloatImage image, const Parameters& drawn) const override {
    const auto erased = drawn.as<ErasedBoxes>();
    Noise noise(erased.noise_key);
    for (int i = 0; i < erased.count; ++i) erase(image, erased.boxes[static_cast<std::size_t>(i)], noise);
  }

 private:
  void erase(const FloatImage& image, const Box& box, Noise& noise) const {
    for (int c = 0; c < image.channels; ++c) {
      float value = value_ == EraseValue::per_channel ? noise.next() : 0;
      for (int y = box.top; y < box.top + box.height; ++y) {
        float* const row = image.values + static_cast<std::size_t>(c) * image.plane() +
                           static_cast<std::size_t>(y) * static_cast<std::size_t>(image.size.width);
        for (int x = box.left; x < box.left + box.width; ++x) {
          row[x] = value_ == EraseValue::per_pixel ? noise.next() : value;
        }
      }
    }
  }

  double probability_;
  RealRange area_;
  RealRange ratio_;
  EraseValue value_;
  int count_;
};

std::vector<double> statistics_option(const Section& options, const std::string& key) {
  const KeySpec numbers = keys::reals(key, "", "", -1e6, 1e6);
  Section parsed;
  parsed.declare(numbers);
  parsed.set(key, options.text(key), key);
  return parsed.reals(key);
}

}  // namespace

ByteTable fraction_table(int channels) {
  std::array<float, 256> values;
  for (std::size_t v = 0; v < 256; ++v) values[v] = static_cast<float>(v) / 255.0F;
  return ByteTable(static_cast<std::size_t>(channels), values);
}

const ChannelStatistics& imagenet_statistics() {
  static const ChannelStatistics statistics{.mean = {0.485, 0.456, 0.406}, .std = {0.229, 0.224, 0.225}};
  return statistics;
}

ChannelStatistics normalize_statistics(const Section& options, const std::optional<ChannelStatistics>& measured) {
  const bool is_auto = options.text("mean") == "auto";
  if (is_auto || options.text("std") == "auto") {
    if (!is_auto || (options.text("std") != "auto" && !options.is_default("std"))) {
      throw ConfigError("mean and std must both be numbers, or mean=auto alone");
    }
    if (!measured) throw ConfigError("mean=auto is not available here; give the numbers");
    return *measured;
  }
  ChannelStatistics statistics{statistics_option(options, "mean"), statistics_option(options, "std")};
  for (const double std : statistics.std) {
    if (std <= 0) throw ConfigError("std must be positive");
  }
  return statistics;
}

std::vector<TransformRow> tensor_transforms() {
  return {
      {.name = "to_float",
       .help = "Converts bytes to float32 numbers in [0, 1]",
       .keys = {},
       .stage = TransformStage::tensor,
       .make = [](const Section&, const TransformContext& context) -> std::unique_ptr<Transform> {
         return std::make_unique<ToFloat>(context.channels);
       }},
      {.name = "normalize",
       .help = "Converts bytes to float32 numbers, (byte / 255 - mean) / std per channel",
       .keys = {keys::words("mean", "0.485,0.456,0.406",
                            "Mean of each channel; auto = measured with 2000 training images"),
                keys::words("std", "0.229,0.224,0.225", "Standard deviation of each channel")},
       .stage = TransformStage::tensor,
       .make = [](const Section&, const TransformContext& context) -> std::unique_ptr<Transform> {
         return std::make_unique<Normalize>(context.statistics);
       },
       .old_names = {"normalise"}},
      {.name = "random_erasing",
       .help = "Replaces a random box by zeros or by normal random numbers",
       .keys = {probability_key("0.25"),
                keys::reals("scale", "0.02,0.33", "Range of the area of the box, as fractions of the image", 0, 1),
                keys::reals("ratio", "0.3,3.3", "Range of height / width of the box", 0, 1e6),
                keys::choice("value", "0", "New values: 0, one normal number per channel (rand) or per value (pixel)",
                             {"0", "rand", "pixel"}),
                keys::integer("count", "1", "Number of boxes; each has this part of the area", 1, kMaxErasedBoxes)},
       .stage = TransformStage::tensor,
       .is_random = true,
       .make = make_from_options<RandomErasing>()},
  };
}

}  // namespace lockstep::data
