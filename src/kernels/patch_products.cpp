// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/patch_products.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/vectors.hpp"

// A matrix product in blocks, as in Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008.
// The patches are never stored as a whole: each block of them is packed from the images.
namespace lockstep::kernels {

namespace {

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

}  // namespace

std::int64_t patch_panels(const PatchProduct& product) {
  return (columns_of(product) + kTileColumns - 1) / kTileColumns;
}

void write_patch_product(const PatchProduct& product, std::int64_t begin, std::int64_t end, float* result) {
  write_columns(product, begin * kTileColumns, std::min(end * kTileColumns, columns_of(product)), result);
}

}  // namespace lockstep::kernels
