// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/convolution_products.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/vectors.hpp"

namespace lockstep::kernels {

namespace {

// A matrix product in blocks, as in Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008.
// The patches are never stored as a whole: each block of them is packed from the images. If the images have few
// channels, the patches are read there: then it takes up to half of the time.

constexpr std::int64_t kPanelColumns = 24;   // the unit in which columns are divided between threads
constexpr std::int64_t kBlockColumns = 384;  // so many columns of packed patches fit into the second-level cache

/// How the product is divided at a length of vectors.
struct PatchBlocks {
  std::int64_t rows;     ///< rows of a tile
  std::int64_t vectors;  ///< vectors in a row of a tile
  std::int64_t pixels;   ///< a panel of this many fits into the first-level cache
};
/// The sums of a tile fill 12 of 16 registers, or 24 of the 32 of AVX-512.
template <std::int64_t kLength>
constexpr PatchBlocks kPatchBlocks = {.rows = kPatchOutputs, .vectors = 3, .pixels = 192};
template <>
constexpr PatchBlocks kPatchBlocks<kLongVector> = {.rows = 2 * kPatchOutputs, .vectors = 3, .pixels = 128};

/// Columns of a tile; those that are packed together are a panel.
template <std::int64_t kLength>
constexpr std::int64_t kTileColumns = kLength* kPatchBlocks<kLength>.vectors;

using Channels = FloatVector<kPatchChannels>;

struct Pixel {
  const float* image = nullptr;  // image of the sample that contains the pixel
  std::int64_t row = 0;          // position in the image of the upper left pixel under the kernel
  std::int64_t column = 0;
};

std::int64_t columns_of(const PatchProduct& product) {
  return product.kernel_height * product.kernel_width * product.channels;
}

/// gradients [pixels, outputs] of the outputs [begin, end) as [outputs / kRows][pixels][kRows]
template <std::int64_t kRows>
LOCKSTEP_INLINE void pack_gradients(const PatchProduct& product, std::int64_t first, std::int64_t pixels,
                                    std::int64_t begin, std::int64_t end, float* target) {
  for (std::int64_t o = begin; o < end; o += kRows) {
    const float* from = product.gradients + first * product.outputs + o;
    for (std::int64_t m = 0; m < pixels; ++m, from += product.outputs, target += kRows) {
      std::memcpy(target, from, kRows * sizeof(float));
    }
  }
}

LOCKSTEP_INLINE void find_pixels(const PatchProduct& product, std::int64_t first, std::int64_t pixels, Pixel* target) {
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
template <std::int64_t kLength>
LOCKSTEP_INLINE void pack_patches(const PatchProduct& product, const Pixel* pixels, std::int64_t count,
                                  std::int64_t begin, std::int64_t end, float* target) {
  constexpr std::int64_t kColumns = kTileColumns<kLength>;
  for (std::int64_t panel = begin; panel < end; panel += kColumns, target += count * kColumns) {
    for (std::int64_t c = 0; c < kColumns; c += kPatchChannels) {
      const std::int64_t column = panel + c;
      float* place = target + c;
      if (column >= end) {
        for (std::int64_t m = 0; m < count; ++m, place += kColumns) vector_at<kPatchChannels>(place) = Channels{};
        continue;
      }
      const std::int64_t channel = column % product.channels;
      const std::int64_t kw = column / product.channels % product.kernel_width;
      const std::int64_t kh = column / product.channels / product.kernel_width;
      for (std::int64_t m = 0; m < count; ++m, place += kColumns) {
        const std::int64_t row = pixels[m].row + kh;
        const std::int64_t position = pixels[m].column + kw;
        const bool is_inside = row >= 0 && row < product.height && position >= 0 && position < product.width;
        const float* const from = pixels[m].image + (row * product.width + position) * product.channels + channel;
        vector_at<kPatchChannels>(place) = is_inside ? vector_at<kPatchChannels>(from) : Channels{};
      }
    }
  }
}

/// Patches that pack_patches has packed.
struct PackedPatches {
  const float* values;
  std::int64_t pixels;

  /// Adds the product of packed gradients with the columns from `column` on.
  template <std::int64_t kLength, std::int64_t kRows, std::int64_t kVectors>
  LOCKSTEP_INLINE void multiply(const float* left, std::int64_t column,
                                FloatVector<kLength> (&sums)[kRows][kVectors]) const {
    const RightFactor right{.values = values + column * pixels, .distance = 0};
    add_product<kLength, kTileColumns<kLength>>(left, 1, kRows, right, pixels, sums);
  }
};

/// Patches where they lie in the images. Those of the pixels of one row of the output are a run, at equal distances.
class PatchesInImages {
 public:
  explicit PatchesInImages(const PatchProduct& product)
      : pixel_step_(product.stride * product.channels),
        row_step_(product.width * product.channels),
        row_columns_(product.kernel_width * product.channels) {}

  /// Whether there are such patches: no pixel under the kernel lies outside of the images, each row of a patch is a
  /// whole number of tiles, and the patches of a block of pixels fit into the first-level cache.
  template <std::int64_t kLength>
  static bool fit(const PatchProduct& product, std::int64_t begin, std::int64_t end) {
    constexpr std::int64_t kMaxChannels = 64;
    constexpr std::int64_t kColumns = kTileColumns<kLength>;
    return product.padding == 0 && product.channels <= kMaxChannels &&
           product.kernel_width * product.channels % kColumns == 0 && begin % kColumns == 0 && end % kColumns == 0;
  }

  /// @param begin  the column that becomes column 0
  void find(const PatchProduct& product, const Pixel* pixels, std::int64_t count, std::int64_t begin) {
    runs_.clear();
    begin_ = begin;
    for (std::int64_t m = 0; m < count; ++m) {
      if (m == 0 || pixels[m].column == 0) {
        runs_.push_back({.first = pixels[m].image + pixels[m].row * row_step_ + pixels[m].column * product.channels});
      }
      ++runs_.back().pixels;
    }
  }

  template <std::int64_t kLength, std::int64_t kRows, std::int64_t kVectors>
  LOCKSTEP_INLINE void multiply(const float* left, std::int64_t column,
                                FloatVector<kLength> (&sums)[kRows][kVectors]) const {
    column += begin_;
    const std::int64_t offset = column / row_columns_ * row_step_ + column % row_columns_;
    for (const Run& run : runs_) {
      const RightFactor right{.values = run.first + offset, .distance = 0, .depth_step = pixel_step_};
      add_product<kLength, kTileColumns<kLength>>(left, 1, kRows, right, run.pixels, sums);
      left += run.pixels * kRows;
    }
  }

 private:
  struct Run {
    const float* first;       ///< upper left pixel under the kernel
    std::int64_t pixels = 0;  ///< pixels of the output
  };

  std::vector<Run> runs_;
  std::int64_t begin_ = 0;
  std::int64_t pixel_step_;
  std::int64_t row_step_;
  std::int64_t row_columns_;
};

/// Adds kRows x kTileColumns of the product of packed gradients and patches.
/// @param columns  of them that exist: a multiple of kPatchChannels
template <std::int64_t kLength, std::int64_t kRows, class Patches>
LOCKSTEP_INLINE void add_tile(const float* left, const Patches& patches, std::int64_t column, float* target,
                              std::int64_t stride, std::int64_t columns) {
  constexpr std::int64_t kVectors = kPatchBlocks<kLength>.vectors;
  FloatVector<kLength> sums[kRows][kVectors] = {};
  patches.template multiply<kLength>(left, column, sums);
#pragma GCC unroll 8
  for (std::int64_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (std::int64_t v = 0; v < kVectors; ++v) {
      if (v * kLength >= columns) continue;
      float* const place = target + r * stride + v * kLength;
      if (kLength == kPatchChannels || (v + 1) * kLength <= columns) {
        vector_at<kLength>(place) += sums[r][v];
      } else {  // half of a long vector
        vector_at<kPatchChannels>(place) += __builtin_shufflevector(sums[r][v], sums[r][v], 0, 1, 2, 3, 4, 5, 6, 7);
      }
    }
  }
}

/// Adds the products of the outputs [begin, end) with all columns.
/// @param left  packed gradients of `pixels` pixels
template <std::int64_t kLength, std::int64_t kRows, class Patches>
LOCKSTEP_INLINE void add_block(const float* left, const Patches& patches, std::int64_t pixels, std::int64_t begin,
                               std::int64_t end, std::int64_t columns, float* target, std::int64_t stride) {
  for (std::int64_t c = 0; c < columns; c += kTileColumns<kLength>) {
    for (std::int64_t o = begin; o < end; o += kRows) {
      add_tile<kLength, kRows>(left + o * pixels, patches, c, target + o * stride + c, stride, columns - c);
    }
  }
}

template <std::int64_t kLength>
LOCKSTEP_INLINE void write_columns(const PatchProduct& product, std::int64_t begin, std::int64_t end, float* result) {
  constexpr std::int64_t kRows = kPatchBlocks<kLength>.rows;
  constexpr std::int64_t kPixels = kPatchBlocks<kLength>.pixels;
  const std::int64_t whole = product.outputs / kRows * kRows;  // outputs in tiles of kRows; the rest is kPatchOutputs
  const std::int64_t all = columns_of(product);
  const std::int64_t pixels = product.samples * product.out_height * product.out_width;
  for (std::int64_t o = 0; o < product.outputs; ++o) {
    std::fill(result + o * all + begin, result + o * all + end, 0.0F);
  }
  std::vector<float> left(static_cast<std::size_t>(kPixels * product.outputs));
  const bool are_in_images = PatchesInImages::fit<kLength>(product, begin, end);
  PatchesInImages in_images(product);
  std::vector<float> right(
      static_cast<std::size_t>(are_in_images ? 0 : kPixels * (kBlockColumns + kTileColumns<kLength>)));
  std::vector<Pixel> places(static_cast<std::size_t>(kPixels));
  for (std::int64_t first = 0; first < pixels; first += kPixels) {
    const std::int64_t count = std::min(kPixels, pixels - first);
    pack_gradients<kRows>(product, first, count, 0, whole, left.data());
    if constexpr (kRows > kPatchOutputs) {
      pack_gradients<kPatchOutputs>(product, first, count, whole, product.outputs, left.data() + whole * count);
    }
    find_pixels(product, first, count, places.data());
    const auto add = [&](const auto& patches, std::int64_t c, std::int64_t last) {
      add_block<kLength, kRows>(left.data(), patches, count, 0, whole, last - c, result + c, all);
      if constexpr (kRows > kPatchOutputs) {
        add_block<kLength, kPatchOutputs>(left.data(), patches, count, whole, product.outputs, last - c, result + c,
                                          all);
      }
    };
    if (are_in_images) {
      in_images.find(product, places.data(), count, begin);
      add(in_images, begin, end);
      continue;
    }
    for (std::int64_t c = begin; c < end; c += kBlockColumns) {
      const std::int64_t last = std::min(end, c + kBlockColumns);
      pack_patches<kLength>(product, places.data(), count, c, last, right.data());
      add(PackedPatches{.values = right.data(), .pixels = count}, c, last);
    }
  }
}

}  // namespace

std::int64_t patch_panels(const PatchProduct& product) {
  return (columns_of(product) + kPanelColumns - 1) / kPanelColumns;
}

void write_patch_product(const PatchProduct& product, std::int64_t begin, std::int64_t end, float* result) {
  with_vectors<write_columns<kShortVector>, write_columns<kLongVector>>(
      product, begin * kPanelColumns, std::min(end * kPanelColumns, columns_of(product)), result);
}

}  // namespace lockstep::kernels
