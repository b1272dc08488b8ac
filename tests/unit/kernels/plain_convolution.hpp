// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "support/unaligned_floats.hpp"

namespace lockstep::testing {

/// Convolutions by their definition, with sums in T. Images and their gradients are [samples, rows, columns, channels].
struct PlainConvolution {
  std::int64_t samples;
  std::int64_t height;
  std::int64_t width;
  std::int64_t channels;
  std::int64_t outputs;
  std::int64_t kernel;
  std::int64_t stride = 1;
  std::int64_t padding = 0;

  std::int64_t out_height() const { return (height + 2 * padding - kernel) / stride + 1; }
  std::int64_t out_width() const { return (width + 2 * padding - kernel) / stride + 1; }
  std::int64_t taps() const { return kernel * kernel; }
  std::int64_t pixels() const { return samples * height * width; }
  std::int64_t out_pixels() const { return samples * out_height() * out_width(); }

  std::string text() const {
    return std::to_string(samples) + " x " + std::to_string(height) + " x " + std::to_string(width) + ", " +
           std::to_string(channels) + " to " + std::to_string(outputs) + " channels, kernel " + std::to_string(kernel) +
           ", stride " + std::to_string(stride) + ", padding " + std::to_string(padding);
  }

  /// @param weight  [outputs, kernel, kernel, channels]
  template <class T>
  std::vector<T> output(const UnalignedFloats& images, const UnalignedFloats& weight) const {
    std::vector<T> result(static_cast<std::size_t>(out_pixels() * outputs));
    for_each_tap([&](std::int64_t pixel, std::int64_t image, std::int64_t tap) {
      for (std::int64_t o = 0; o < outputs; ++o) {
        T& sum = result[static_cast<std::size_t>(pixel * outputs + o)];
        for (std::int64_t c = 0; c < channels; ++c) {
          sum += T{images[image * channels + c]} * T{weight[(o * taps() + tap) * channels + c]};
        }
      }
    });
    return result;
  }

  /// @return  like the weight
  template <class T>
  std::vector<T> weight_gradient(const UnalignedFloats& images, const UnalignedFloats& gradients) const {
    std::vector<T> result(static_cast<std::size_t>(outputs * taps() * channels));
    for_each_tap([&](std::int64_t pixel, std::int64_t image, std::int64_t tap) {
      for (std::int64_t o = 0; o < outputs; ++o) {
        T* const sums = result.data() + (o * taps() + tap) * channels;
        for (std::int64_t c = 0; c < channels; ++c) {
          sums[c] += T{gradients[pixel * outputs + o]} * T{images[image * channels + c]};
        }
      }
    });
    return result;
  }

  /// @param weight  [channels, kernel, kernel]
  template <class T>
  std::vector<T> depthwise_output(const UnalignedFloats& images, const UnalignedFloats& weight) const {
    std::vector<T> result(static_cast<std::size_t>(out_pixels() * channels));
    for_each_tap([&](std::int64_t pixel, std::int64_t image, std::int64_t tap) {
      for (std::int64_t c = 0; c < channels; ++c) {
        result[static_cast<std::size_t>(pixel * channels + c)] +=
            T{images[image * channels + c]} * T{weight[c * taps() + tap]};
      }
    });
    return result;
  }

  template <class T>
  std::vector<T> depthwise_gradient(const UnalignedFloats& images, const UnalignedFloats& gradients) const {
    std::vector<T> result(static_cast<std::size_t>(channels * taps()));
    for_each_tap([&](std::int64_t pixel, std::int64_t image, std::int64_t tap) {
      for (std::int64_t c = 0; c < channels; ++c) {
        result[static_cast<std::size_t>(c * taps() + tap)] +=
            T{gradients[pixel * channels + c]} * T{images[image * channels + c]};
      }
    });
    return result;
  }

 private:
  /// Calls visit(output pixel, pixel of the images, tap) where the tap is inside of the image.
  template <class Visit>
  void for_each_tap(const Visit& visit) const {
    for (std::int64_t pixel = 0; pixel < out_pixels(); ++pixel) {
      const std::int64_t row = pixel / out_width() % out_height() * stride - padding;
      const std::int64_t column = pixel % out_width() * stride - padding;
      const std::int64_t sample = pixel / out_width() / out_height();
      for (std::int64_t tap = 0; tap < taps(); ++tap) {
        const std::int64_t h = row + tap / kernel;
        const std::int64_t w = column + tap % kernel;
        if (h < 0 || h >= height || w < 0 || w >= width) continue;
        visit(pixel, (sample * height + h) * width + w, tap);
      }
    }
  }
};

}  // namespace lockstep::testing
