// SPDX-License-Identifier: BSD-3-Clause
// A user's program with tasks that the built-in sources do not have: the trainer with generated images [1, 8, 8] of 0
// and 1. The targets are the classes of the pixels (segmentation), or twice the image (a regression of fields).
//
// With SLOW_MS in the environment, each batch takes that many milliseconds.
#include <lockstep/engine/registry.hpp>
#include <lockstep/models/layers.hpp>
#include <lockstep/trainer/trainer.hpp>

#include <torch/types.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>

using namespace lockstep;

constexpr std::int64_t kSide = 8;

class Squares : public data::Dataset, public data::SampleNames {
 public:
  Squares(std::int64_t size, bool is_field) : size_(size), is_field_(is_field) {}
  std::int64_t size() const override { return size_; }
  Task task() const override {
    if (is_field_) return {.sample_shape = {1, kSide, kSide}, .classes = 1, .kind = TaskKind::regression};
    return {.sample_shape = {1, kSide, kSide},
            .classes = 2,
            .kind = TaskKind::segmentation,
            .class_names = {"ground", "square, bright"}};
  }
  std::uint64_t digest() const override { return static_cast<std::uint64_t>(size_); }
  std::string sample_name(std::int64_t index) const override { return "square " + std::to_string(index); }
  batch::Batch get(std::span<const batch::Draw> draws) const override {
    if (const char* const slow = std::getenv("SLOW_MS")) {
      std::this_thread::sleep_for(std::chrono::milliseconds(std::atoi(slow)));
    }
    const auto count = static_cast<std::int64_t>(draws.size());
    const at::Tensor images = at::zeros({count, 1, kSide, kSide});
    for (std::int64_t i = 0; i < count; ++i) {  // a square of (index % 8) x 2 pixels
      images[i][0].narrow(0, 0, draws[static_cast<std::size_t>(i)].index % kSide).narrow(1, 0, 2).fill_(1);
    }
    return {images, is_field_ ? images * 2 : images.squeeze(1).to(at::kLong)};
  }

 private:
  std::int64_t size_;
  bool is_field_;
};

/// A convolution of single pixels.
class Pixels : public models::Model {
 public:
  explicit Pixels(std::int64_t channels)
      : head_(register_module("head", std::make_shared<models::Conv2d>(1, channels, 1))) {}
  at::Tensor forward(const at::Tensor& images) override { return models::run(*head_, images); }

 private:
  std::shared_ptr<models::Conv2d> head_;
};

std::shared_ptr<models::Model> make_pixels(const Section&, const Task& task) {
  return std::make_shared<Pixels>(task.classes);
}

template <bool is_field>
data::Splits open_squares(const Section&) {
  return {.train = std::make_shared<Squares>(64, is_field), .val = std::make_shared<Squares>(43, is_field)};
}

int main(int argc, char** argv) {
  engine::Registry registry;
  registry.models.push_back({.name = "pixels",
                             .help = "a convolution of single pixels",
                             .keys = {},
                             .make = make_pixels,
                             .family = {.head = {"head"}}});
  registry.sources.push_back({.name = "squares", .help = "images and masks", .keys = {}, .open = open_squares<false>});
  registry.sources.push_back(
      {.name = "images_and_fields", .help = "images and fields", .keys = {}, .open = open_squares<true>});
  trainer::run(argc, argv, registry);
}
