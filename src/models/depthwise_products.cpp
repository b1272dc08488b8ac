// SPDX-License-Identifier: BSD-3-Clause
#include <ATen/Parallel.h>

#include <algorithm>
#include <vector>

#include "models/patch_products.hpp"

// A block of channels is worked on by one thread. Along a row of pixels, the sums of a row of its kernels stay in
// registers.
namespace lockstep::models {

namespace {

#if defined(__x86_64__)
#define LOCKSTEP_AVX2 [[gnu::target("avx2,fma")]]
#else
#define LOCKSTEP_AVX2
#endif

using Vector [[gnu::vector_size(32)]] = float;
using Unaligned [[gnu::vector_size(32), gnu::aligned(4), gnu::may_alias]] = float;

constexpr std::int64_t kVector = kPatchChannels;

/// A row of gradients, the row of the images under a row of the kernel, and the channels of both.
struct RowPair {
  const float* image;
  const float* gradients;
};

/// Adds the products of a row of gradients with the pixels under a row of the kernel.
/// @param kWidth  of the kernel
/// @param sums    [kWidth][kVectors * kVector]
template <std::int64_t kWidth, std::int64_t kVectors>
LOCKSTEP_AVX2 void add_row(const PatchProduct& product, const RowPair& rows, float* sums) {
  Vector totals[kWidth][kVectors];
#pragma GCC unroll 8
  for (std::int64_t k = 0; k < kWidth; ++k) {
#pragma GCC unroll 8
    for (std::int64_t v = 0; v < kVectors; ++v) {
      totals[k][v] = *reinterpret_cast<const Unaligned*>(sums + (k * kVectors + v) * kVector);
    }
  }
  for (std::int64_t w = 0; w < product.out_width; ++w) {
    const std::int64_t first = w * product.stride - product.padding;
    const float* const gradient = rows.gradients + w * product.outputs;
    const float* const pixel = rows.image + first * product.channels;
    const bool is_inside = first >= 0 && first + kWidth <= product.width;
#pragma GCC unroll 8
    for (std::int64_t k = 0; k < kWidth; ++k) {
      if (!is_inside && (first + k < 0 || first + k >= product.width)) continue;
#pragma GCC unroll 8
      for (std::int64_t v = 0; v < kVectors; ++v) {
        totals[k][v] += *reinterpret_cast<const Unaligned*>(gradient + v * kVector) *
                        *reinterpret_cast<const Unaligned*>(pixel + k * product.channels + v * kVector);
      }
    }
  }
#pragma GCC unroll 8
  for (std::int64_t k = 0; k < kWidth; ++k) {
#pragma GCC unroll 8
    for (std::int64_t v = 0; v < kVectors; ++v) {
      *reinterpret_cast<Unaligned*>(sums + (k * kVectors + v) * kVector) = totals[k][v];
    }
  }
}

/// The kernels of kVectors * kVector channels.
template <std::int64_t kWidth, std::int64_t kVectors>
void write_channels(const PatchProduct& product, std::int64_t channel, float* result) {
  constexpr std::int64_t kChannels = kVectors * kVector;
  std::vector<float> sums(static_cast<std::size_t>(product.kernel_height * kWidth * kChannels));
  for (std::int64_t n = 0; n < product.samples; ++n) {
    for (std::int64_t h = 0; h < product.out_height; ++h) {
      const float* const gradients =
          product.gradients + (n * product.out_height + h) * product.out_width * product.outputs + channel;
      for (std::int64_t k = 0; k < product.kernel_height; ++k) {
        const std::int64_t row = h * product.stride - product.padding + k;
        if (row < 0 || row >= product.height) continue;
        const float* const image =
            product.images + (n * product.height + row) * product.width * product.channels + channel;
        add_row<kWidth, kVectors>(product, {image, gradients}, sums.data() + k * kWidth * kChannels);
      }
    }
  }
  const std::int64_t taps = product.kernel_height * kWidth;
  for (std::int64_t c = 0; c < kChannels; ++c) {
    for (std::int64_t k = 0; k < taps; ++k) {
      result[(channel + c) * taps + k] = sums[static_cast<std::size_t>(k * kChannels + c)];
    }
  }
}

template <std::int64_t kWidth>
void write_channels_of_width(const PatchProduct& product, std::int64_t begin, std::int64_t end, float* result) {
  std::int64_t channel = begin;
  for (; channel + 2 * kVector <= end; channel += 2 * kVector) write_channels<kWidth, 2>(product, channel, result);
  if (channel < end) write_channels<kWidth, 1>(product, channel, result);
}

}  // namespace

bool has_depthwise_product(std::int64_t kernel_width) {
  return has_patch_product() && (kernel_width == 3 || kernel_width == 5 || kernel_width == 7);
}

void write_depthwise_product(const PatchProduct& product, float* result) {
  constexpr std::int64_t kGroup = 2 * kVector;
  const std::int64_t groups = (product.channels + kGroup - 1) / kGroup;
  at::parallel_for(0, groups, 1, [&](std::int64_t first, std::int64_t last) {
    const std::int64_t begin = first * kGroup;
    const std::int64_t end = std::min(last * kGroup, product.channels);
    switch (product.kernel_width) {
      case 3:
        return write_channels_of_width<3>(product, begin, end, result);
      case 5:
        return write_channels_of_width<5>(product, begin, end, result);
      default:
        return write_channels_of_width<7>(product, begin, end, result);
    }
  });
}

}  // namespace lockstep::models
