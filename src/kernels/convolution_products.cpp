// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/convolution_products.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/vectors.hpp"

namespace lockstep::kernels {

namespace {

// A matrix product in blocks, as in Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008.
// The patches are never stored as a whole: each block of them is packed from the images.

static_assert(kVector == kPatchChannels);
constexpr std::int64_t kVectors = 3;  // vectors in a row of a tile; the sums of a tile then fill 12 of 16 registers
constexpr std::int64_t kTileRows = kPatchOutputs;
constexpr std::int64_t kTileColumns = kVectors * kVector;
constexpr std::int64_t kBlockPixels = 192;   // a panel of this many fits into the first-level cache
constexpr std::int64_t kBlockColumns = 384;  // so many columns of packed patches fit into the second-level cache

struct Pixel {
  const float* image = nullptr;  // image of the sample that contains the pixel
  std::int64_t row = 0;          // position in the image of the upper left pixel under the kernel
  std::int64_t column = 0;
};

std::int64_t columns_of(const PatchProduct& product) {
  return product.kernel_height * product.kernel_width * product.channels;
}

/// gradients [pixels, outputs] as [outputs / kTileRows][pixels][kTileRows]
LOCKSTEP_VECTOR_KERNEL void pack_gradients(const PatchProduct& product, std::int64_t first, std::int64_t pixels,
                                           float* target) {
  for (std::int64_t o = 0; o < product.outputs; o += kTileRows) {
    const float* from = product.gradients + first * product.outputs + o;
    for (std::int64_t m = 0; m < pixels; ++m, from += product.outputs, target += kTileRows) {
      std::memcpy(target, from, kTileRows * sizeof(float));
    }
  }
}

void find_pixels(const PatchProduct& product, std::int64_t first, std::int64_t pixels, Pixel* target) {
  std::int64_t w = first % product.out_width;
  std::int64_t h = first / product.out_width % product.out_height;
  std::int64_t n = first / product.out_width / product.out_height;
  for (std::int64_t m = 0; m < pixels; ++m) {
    target[m] = {.image = product.images + n * product.height * product.width * product.channels,
                 .row = h * product.stride - product.padding,
                 .column = w * product.stride - product.padding};
    if (++w < product.out_width) continue;
    w = 0;
    if (++h < product.out_height) continue;
    h = 0;
    ++n;
  }
}

/// The patches of these pixels as [columns / kTileColumns][pixels][kTileColumns], zeros behind the last column.
LOCKSTEP_VECTOR_KERNEL void pack_patches(const PatchProduct& product, const Pixel* pixels, std::int64_t count,
                                         std::int64_t begin, std::int64_t end, float* target) {
  for (std::int64_t panel = begin; panel < end; panel += kTileColumns) {
    for (std::int64_t v = 0; v < kVectors; ++v) {
      const std::int64_t column = panel + v * kVector;
      float* place = target + v * kVector;
      if (column >= end) {
        for (std::int64_t m = 0; m < count; ++m, place += kTileColumns) store(Vector{}, place);
        continue;
      }
      const std::int64_t channel = column % product.channels;
      const std::int64_t kw = column / product.channels % product.kernel_width;
      const std::int64_t kh = column / product.channels / product.kernel_width;
      for (std::int64_t m = 0; m < count; ++m, place += kTileColumns) {
        const std::int64_t row = pixels[m].row + kh;
        const std::int64_t position = pixels[m].column + kw;
        const bool is_inside = row >= 0 && row < product.height && position >= 0 && position < product.width;
        const float* const from = pixels[m].image + (row * product.width + position) * product.channels + channel;
        store(is_inside ? load(from) : Vector{}, place);
      }
    }
    target += count * kTileColumns;
  }
}

/// Adds kTileRows x kTileColumns of the product of two panels.
/// @param columns  of them that exist: whole vectors
LOCKSTEP_VECTOR_INLINE void add_tile(const float* left, const float* right, std::int64_t pixels, float* target,
                                     std::int64_t stride, std::int64_t columns) {
  Vector sums[kTileRows][kVectors] = {};
  add_product(left, 1, kTileRows, right, pixels, sums);
#pragma GCC unroll 8
  for (std::int64_t r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 8
    for (std::int64_t v = 0; v < kVectors; ++v) {
      if (v * kVector >= columns) continue;
      float* const place = target + r * stride + v * kVector;
      store(load(place) + sums[r][v], place);
    }
  }
}

LOCKSTEP_VECTOR_KERNEL void add_block(const float* left, const float* right, std::int64_t pixels, std::int64_t outputs,
                                      std::int64_t columns, float* target, std::int64_t stride) {
  for (std::int64_t c = 0; c < columns; c += kTileColumns) {
    for (std::int64_t o = 0; o < outputs; o += kTileRows) {
      add_tile(left + o * pixels, right + c * pixels, pixels, target + o * stride + c, stride, columns - c);
    }
  }
}

void write_columns(const PatchProduct& product, std::int64_t begin, std::int64_t end, float* result) {
  const std::int64_t all = columns_of(product);
  const std::int64_t pixels = product.samples * product.out_height * product.out_width;
  for (std::int64_t o = 0; o < product.outputs; ++o) {
    std::fill(result + o * all + begin, result + o * all + end, 0.0F);
  }
  std::vector<float> left(static_cast<std::size_t>(kBlockPixels * product.outputs));
  std::vector<float> right(static_cast<std::size_t>(kBlockPixels * (kBlockColumns + kTileColumns)));
  std::vector<Pixel> places(static_cast<std::size_t>(kBlockPixels));
  for (std::int64_t first = 0; first < pixels; first += kBlockPixels) {
    const std::int64_t count = std::min(kBlockPixels, pixels - first);
    pack_gradients(product, first, count, left.data());
    find_pixels(product, first, count, places.data());
    for (std::int64_t c = begin; c < end; c += kBlockColumns) {
      const std::int64_t last = std::min(end, c + kBlockColumns);
      pack_patches(product, places.data(), count, c, last, right.data());
      add_block(left.data(), right.data(), count, product.outputs, last - c, result + c, all);
    }
  }
}

static_assert(kVector == kPatchChannels);
static_assert(kDepthwiseChannels == 2 * kVector);

// --- the convolution ---

constexpr std::int64_t kTile = 6;  // pixels of a row whose sums fill 12 registers

/// Rows of an image that the kernel covers, with zeros at both ends: a ring of `kernel` rows.
template <std::int64_t kChannels>
class PaddedRows {
 public:
  PaddedRows(const DepthwiseConvolution& convolution, std::int64_t channel)
      : convolution_(convolution),
        channel_(channel),
        // The last tile reads past the pixels that it needs.
        width_((convolution.out_width + kTile) * convolution.stride + convolution.kernel + convolution.padding),
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
template <std::int64_t kKernel, std::int64_t kStride, std::int64_t kVectors>
LOCKSTEP_VECTOR_KERNEL void write_output_row(const float* const* rows, const float* weights, const float* bias,
                                             std::int64_t out_width, std::int64_t channels, float* target) {
  constexpr std::int64_t kChannels = kVectors * kVector;
  for (std::int64_t first = 0; first < out_width; first += kTile) {
    Vector sums[kTile][kVectors];
#pragma GCC unroll 8
    for (std::int64_t t = 0; t < kTile; ++t) {
#pragma GCC unroll 8
      for (std::int64_t v = 0; v < kVectors; ++v) sums[t][v] = load(bias + v * kVector);
    }
    for (std::int64_t i = 0; i < kKernel; ++i) {
      const float* const row = rows[i] + first * kStride * kChannels;
      const float* const factors = weights + i * kKernel * kChannels;
#pragma GCC unroll 8
      for (std::int64_t k = 0; k < kKernel; ++k) {
#pragma GCC unroll 8
        for (std::int64_t v = 0; v < kVectors; ++v) {
          const Vector factor = load(factors + k * kChannels + v * kVector);
#pragma GCC unroll 8
          for (std::int64_t t = 0; t < kTile; ++t) {
            sums[t][v] += factor * load(row + (t * kStride + k) * kChannels + v * kVector);
          }
        }
      }
    }
    const std::int64_t count = std::min(kTile, out_width - first);
    for (std::int64_t t = 0; t < count; ++t) {
#pragma GCC unroll 8
      for (std::int64_t v = 0; v < kVectors; ++v) {
        store(sums[t][v], target + (first + t) * channels + v * kVector);
      }
    }
  }
}

template <std::int64_t kKernel, std::int64_t kStride, std::int64_t kVectors>
void write_block(const DepthwiseConvolution& convolution, std::int64_t sample, std::int64_t channel, float* result) {
  constexpr std::int64_t kChannels = kVectors * kVector;
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
  PaddedRows<kChannels> padded(convolution, channel);
  std::int64_t next = -convolution.padding;  // next row to be read
  for (std::int64_t h = 0; h < convolution.out_height; ++h) {
    const std::int64_t first = h * kStride - convolution.padding;
    for (next = std::max(next, first); next < first + kKernel; ++next) padded.read(sample, next);
    const float* rows[kKernel];
    for (std::int64_t i = 0; i < kKernel; ++i) rows[i] = padded.row(first + i);
    write_output_row<kKernel, kStride, kVectors>(
        rows, weights, bias, convolution.out_width, convolution.channels,
        result + (sample * convolution.out_height + h) * convolution.out_width * convolution.channels + channel);
  }
}

template <std::int64_t kKernel>
void write_channels_of_sample(const DepthwiseConvolution& convolution, std::int64_t sample, std::int64_t channel,
                              float* result) {
  const bool is_pair = channel + 2 * kVector <= convolution.channels;
  if (convolution.stride == 1) {
    is_pair ? write_block<kKernel, 1, 2>(convolution, sample, channel, result)
            : write_block<kKernel, 1, 1>(convolution, sample, channel, result);
  } else {
    is_pair ? write_block<kKernel, 2, 2>(convolution, sample, channel, result)
            : write_block<kKernel, 2, 1>(convolution, sample, channel, result);
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
/// @param sums    [kWidth][kVectors * kVector]
template <std::int64_t kWidth, std::int64_t kVectors>
LOCKSTEP_VECTOR_KERNEL void add_row(const PatchProduct& product, const RowPair& rows, float* sums) {
  Vector totals[kWidth][kVectors];
#pragma GCC unroll 8
  for (std::int64_t k = 0; k < kWidth; ++k) {
#pragma GCC unroll 8
    for (std::int64_t v = 0; v < kVectors; ++v) {
      totals[k][v] = load(sums + (k * kVectors + v) * kVector);
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
        totals[k][v] += load(gradient + v * kVector) * load(pixel + k * product.channels + v * kVector);
      }
    }
  }
#pragma GCC unroll 8
  for (std::int64_t k = 0; k < kWidth; ++k) {
#pragma GCC unroll 8
    for (std::int64_t v = 0; v < kVectors; ++v) {
      store(totals[k][v], sums + (k * kVectors + v) * kVector);
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

std::int64_t patch_panels(const PatchProduct& product) {
  return (columns_of(product) + kTileColumns - 1) / kTileColumns;
}

void write_patch_product(const PatchProduct& product, std::int64_t begin, std::int64_t end, float* result) {
  write_columns(product, begin * kTileColumns, std::min(end * kTileColumns, columns_of(product)), result);
}

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
