// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/depthwise.hpp"

#include <algorithm>
#include <vector>

#include "kernels/vectors.hpp"

namespace lockstep::kernels {

namespace {

// --- the convolution ---

/// Pixels of a row that are worked on together. The sums of 16 channels fill 12 of 16 registers, or 14 of the 32 of
/// AVX-512: rows of 224 pixels, and of those that are halved again and again, have no rest.
template <std::int64_t kLength>
constexpr std::int64_t kTile = 6;
template <>
constexpr std::int64_t kTile<kLongVector> = 14;

/// Rows of an image that the kernel covers, with zeros at both ends: a ring of `kernel` rows.
template <std::int64_t kChannels>
class PaddedRows {
 public:
  PaddedRows(const DepthwiseConvolution& convolution, std::int64_t channel, std::int64_t tile)
      : convolution_(convolution),
        channel_(channel),
        // The last tile reads past the pixels that it needs.
        width_((convolution.out_width + tile) * convolution.stride + convolution.kernel + convolution.padding),
        values_(static_cast<std::size_t>(convolution.kernel * width_ * kChannels)) {}

  /// Row `row` of the image of a sample, or zeros outside of it.
  void read(std::int64_t sample, std::int64_t row) {
    float* const target = place(row);
    if (row < 0 || row >= convolution_.height) {
      std::fill(target, target + width_ * kChannels, 0.0F);
      return;
    }
    const float* from = convolution_.images +
                        (sample * convolution_.height + row) * convolution_.width * convolution_.channels + channel_;
    const std::int64_t count = std::min(convolution_.width, width_ - convolution_.padding);
    for (std::int64_t w = 0; w < count; ++w, from += convolution_.channels) {
      std::copy(from, from + kChannels, target + (convolution_.padding + w) * kChannels);
    }
    // The values that a row of another image or zeros left behind.
    std::fill(target, target + convolution_.padding * kChannels, 0.0F);
    std::fill(target + (convolution_.padding + count) * kChannels, target + width_ * kChannels, 0.0F);
  }

  const float* row(std::int64_t row) const { return const_cast<PaddedRows*>(this)->place(row); }

 private:
  float* place(std::int64_t row) {
    return values_.data() + (row + convolution_.kernel) % convolution_.kernel * width_ * kChannels;  // row >= -kernel
  }

  const DepthwiseConvolution& convolution_;
  std::int64_t channel_;
  std::int64_t width_;
  std::vector<float> values_;
};

/// @param rows     [kKernel] rows under the kernel
/// @param weights  [kKernel][kKernel][channels of the block]
/// @param bias     [channels of the block]
template <std::int64_t kLength, std::int64_t kKernel, std::int64_t kStride, std::int64_t kVectors>
LOCKSTEP_INLINE void write_output_row(const float* const* rows, const float* weights, const float* bias,
                                      std::int64_t out_width, std::int64_t channels, float* target) {
  constexpr std::int64_t kPixels = kTile<kLength>;
  constexpr std::int64_t kChannels = kVectors * kLength;
  for (std::int64_t first = 0; first < out_width; first += kPixels) {
    FloatVector<kLength> sums[kPixels][kVectors];
#pragma GCC unroll 16
    for (std::int64_t t = 0; t < kPixels; ++t) {
#pragma GCC unroll 8
      for (std::int64_t v = 0; v < kVectors; ++v) sums[t][v] = vector_at<kLength>(bias + v * kLength);
    }
    for (std::int64_t i = 0; i < kKernel; ++i) {
      const float* const row = rows[i] + first * kStride * kChannels;
      const float* const factors = weights + i * kKernel * kChannels;
#pragma GCC unroll 8
      for (std::int64_t k = 0; k < kKernel; ++k) {
#pragma GCC unroll 8
        for (std::int64_t v = 0; v < kVectors; ++v) {
          const FloatVector<kLength> factor = vector_at<kLength>(factors + k * kChannels + v * kLength);
#pragma GCC unroll 16
          for (std::int64_t t = 0; t < kPixels; ++t) {
            sums[t][v] += factor * vector_at<kLength>(row + (t * kStride + k) * kChannels + v * kLength);
          }
        }
      }
    }
    const std::int64_t count = std::min(kPixels, out_width - first);
    for (std::int64_t t = 0; t < count; ++t) {
#pragma GCC unroll 8
      for (std::int64_t v = 0; v < kVectors; ++v) {
        vector_at<kLength>(target + (first + t) * channels + v * kLength) = sums[t][v];
      }
    }
  }
}

/// The length of vectors for a number of channels, up to two vectors of which are worked on together.
constexpr std::int64_t length_for(std::int64_t channels, std::int64_t length) {
  return std::clamp(length, channels / 2, channels);
}

template <std::int64_t kKernel, std::int64_t kStride, std::int64_t kChannels>
void write_block(const DepthwiseConvolution& convolution, std::int64_t sample, std::int64_t channel, float* result) {
  constexpr std::int64_t kShort = length_for(kChannels, kShortVector);
  constexpr std::int64_t kLong = length_for(kChannels, kLongVector);
  const auto write_row = chosen_with_vectors<write_output_row<kShort, kKernel, kStride, kChannels / kShort>,
                                             write_output_row<kLong, kKernel, kStride, kChannels / kLong>>();
  constexpr std::int64_t kTaps = kKernel * kKernel;
  float weights[kTaps * kChannels];
  float bias[kChannels];
  for (std::int64_t c = 0; c < kChannels; ++c) {
    for (std::int64_t k = 0; k < kTaps; ++k) {
      weights[k * kChannels + c] =
          convolution.weight[(channel + c) * kTaps + (convolution.is_turned ? kTaps - 1 - k : k)];
    }
    bias[c] = convolution.bias == nullptr ? 0 : convolution.bias[channel + c];
  }
  PaddedRows<kChannels> padded(convolution, channel, has_long_vectors() ? kTile<kLong> : kTile<kShort>);
  std::int64_t next = -convolution.padding;  // next row to be read
  for (std::int64_t h = 0; h < convolution.out_height; ++h) {
    const std::int64_t first = h * kStride - convolution.padding;
    for (next = std::max(next, first); next < first + kKernel; ++next) padded.read(sample, next);
    const float* rows[kKernel];
    for (std::int64_t i = 0; i < kKernel; ++i) rows[i] = padded.row(first + i);
    write_row(rows, weights, bias, convolution.out_width, convolution.channels,
              result + (sample * convolution.out_height + h) * convolution.out_width * convolution.channels + channel);
  }
}

template <std::int64_t kKernel>
void write_channels_of_sample(const DepthwiseConvolution& convolution, std::int64_t sample, std::int64_t channel,
                              float* result) {
  const bool is_whole = channel + kDepthwiseChannels <= convolution.channels;
  if (convolution.stride == 1) {
    is_whole ? write_block<kKernel, 1, kDepthwiseChannels>(convolution, sample, channel, result)
             : write_block<kKernel, 1, kPatchChannels>(convolution, sample, channel, result);
  } else {
    is_whole ? write_block<kKernel, 2, kDepthwiseChannels>(convolution, sample, channel, result)
             : write_block<kKernel, 2, kPatchChannels>(convolution, sample, channel, result);
  }
}

// --- the gradient of the weight: along a row of pixels, the sums of a row of the kernels stay in registers ---

/// A row of gradients, the row of the images under a row of the kernel, and the channels of both.
struct RowPair {
  const float* image;
  const float* gradients;
};

/// Adds the products of a row of gradients with the pixels under a row of the kernel.
/// @param kWidth  of the kernel
/// @param sums    [kWidth][kVectors * kLength]
template <std::int64_t kLength, std::int64_t kWidth, std::int64_t kVectors>
LOCKSTEP_INLINE void add_row(const PatchProduct& product, const RowPair& rows, float* sums) {
  FloatVector<kLength> totals[kWidth][kVectors];
#pragma GCC unroll 8
  for (std::int64_t k = 0; k < kWidth; ++k) {
#pragma GCC unroll 8
    for (std::int64_t v = 0; v < kVectors; ++v) {
      totals[k][v] = vector_at<kLength>(sums + (k * kVectors + v) * kLength);
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
        totals[k][v] +=
            vector_at<kLength>(gradient + v * kLength) * vector_at<kLength>(pixel + k * product.channels + v * kLength);
      }
    }
  }
#pragma GCC unroll 8
  for (std::int64_t k = 0; k < kWidth; ++k) {
#pragma GCC unroll 8
    for (std::int64_t v = 0; v < kVectors; ++v) {
      vector_at<kLength>(sums + (k * kVectors + v) * kLength) = totals[k][v];
    }
  }
}

/// The kernels of kChannels channels.
template <std::int64_t kWidth, std::int64_t kChannels>
void write_channels(const PatchProduct& product, std::int64_t channel, float* result) {
  constexpr std::int64_t kShort = length_for(kChannels, kShortVector);
  constexpr std::int64_t kLong = length_for(kChannels, kLongVector);
  const auto add =
      chosen_with_vectors<add_row<kShort, kWidth, kChannels / kShort>, add_row<kLong, kWidth, kChannels / kLong>>();
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
        add(product, {image, gradients}, sums.data() + k * kWidth * kChannels);
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
  constexpr std::int64_t kLongPair = 2 * kLongVector;
  std::int64_t channel = begin;
  if (has_long_vectors()) {
    for (; channel + kLongPair <= end; channel += kLongPair)
      write_channels<kWidth, kLongPair>(product, channel, result);
  }
  for (; channel + kDepthwiseChannels <= end; channel += kDepthwiseChannels) {
    write_channels<kWidth, kDepthwiseChannels>(product, channel, result);
  }
  if (channel < end) write_channels<kWidth, kPatchChannels>(product, channel, result);
}

}  // namespace

bool is_depthwise_size(std::int64_t kernel, std::int64_t stride) {
  return (kernel == 3 || kernel == 5 || kernel == 7) && (stride == 1 || stride == 2);
}

void write_depthwise_convolution(const DepthwiseConvolution& convolution, std::int64_t begin, std::int64_t end,
                                 float* result) {
  const std::int64_t blocks = depthwise_blocks(convolution.channels);
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int64_t sample = i / blocks;
    const std::int64_t channel = i % blocks * kDepthwiseChannels;
    switch (convolution.kernel) {
      case 3:
        write_channels_of_sample<3>(convolution, sample, channel, result);
        break;
      case 5:
        write_channels_of_sample<5>(convolution, sample, channel, result);
        break;
      default:
        write_channels_of_sample<7>(convolution, sample, channel, result);
        break;
    }
  }
}

void write_depthwise_product(const PatchProduct& product, std::int64_t begin, std::int64_t end, float* result) {
  const std::int64_t first = begin * kDepthwiseChannels;
  const std::int64_t last = std::min(end * kDepthwiseChannels, product.channels);
  switch (product.kernel_width) {
    case 3:
      return write_channels_of_width<3>(product, first, last, result);
    case 5:
      return write_channels_of_width<5>(product, first, last, result);
    default:
      return write_channels_of_width<7>(product, first, last, result);
  }
}

}  // namespace lockstep::kernels
