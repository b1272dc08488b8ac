// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/winograd.hpp"

#include <algorithm>

#include "kernels/vectors.hpp"
#include "kernels/winograd_transforms.hpp"

// The output is divided into tiles of 2x2 or 4x4 pixels. Each tile reads 4x4 or 6x6 pixels of the images. They are
// transformed into 16 or 36 numbers per channel, as is the weight. For each of these positions, the numbers of a block
// of tiles are multiplied with the weight, a product of matrices. The products of a tile are transformed into its
// output pixels. For the gradient of the weight, the output's gradient is transformed instead, and the sums are those
// over the tiles. A direct convolution takes 9 multiplications for an output pixel, tiles of 2x2 take 4, those of 4x4
// take 2.25.
namespace lockstep::kernels {

namespace {

constexpr std::int64_t kTaps = 9;

/// Calls `function` with the side of tiles as a constant.
template <class Function>
void by_side(std::int64_t side, const Function& function) {
  side == 2 ? function.template operator()<2>() : function.template operator()<4>();
}

/// Rows of the left matrices that are multiplied at once with 2 vectors of the right ones.
struct TileRows {
  std::int64_t product;  ///< divides kWinogradTiles; the sums fill 12 of 16 registers, or 24 of the 32 of AVX-512
  std::int64_t sum;      ///< divides kWinogradPanel
};
template <std::int64_t kLength>
constexpr TileRows kTileRows = {.product = 6, .sum = 4};
template <>
constexpr TileRows kTileRows<kLongVector> = {.product = 12, .sum = 8};

struct Tile {
  std::int64_t sample, row, column;  // position in the output of the upper left pixel
};

LOCKSTEP_INLINE Tile tile_of(const WinogradTask& task, std::int64_t number) {
  const std::int64_t row = number / task.tile_columns();
  return {.sample = row / task.tile_rows(),
          .row = row % task.tile_rows() * task.side,
          .column = number % task.tile_columns() * task.side};
}

// --- the weight ---

/// One kernel of each of kWinogradPanel lanes.
/// @param taps    of the kernel, row by row: kWinogradPanel numbers each
/// @param target  kWinogradPanel numbers of the first position; those of the next one are `stride` behind
template <std::int64_t kLength, std::int64_t kSide>
LOCKSTEP_INLINE void transform_kernels(const float* const (&taps)[kTaps], float* target, std::int64_t stride) {
  constexpr std::int64_t kReach = Line<kSide>::kReach;
  for (std::int64_t v = 0; v < kWinogradPanel; v += kLength) {
    FloatVector<kLength> rows[kReach][3];
    for (std::int64_t k = 0; k < 3; ++k) {
      const FloatVector<kLength> column[3] = {vector_at<kLength>(taps[k] + v), vector_at<kLength>(taps[3 + k] + v),
                                              vector_at<kLength>(taps[6 + k] + v)};
      FloatVector<kLength> values[kReach];
      Line<kSide>::transform_taps(column, values);
#pragma GCC unroll 8
      for (std::int64_t i = 0; i < kReach; ++i) rows[i][k] = values[i];
    }
    for (std::int64_t i = 0; i < kReach; ++i) {
      FloatVector<kLength> values[kReach];
      Line<kSide>::transform_taps(rows[i], values);
#pragma GCC unroll 8
      for (std::int64_t j = 0; j < kReach; ++j) vector_at<kLength>(target + (i * kReach + j) * stride + v) = values[j];
    }
  }
}

/// [kLength rows][kLength], `stride` apart, as [kLength columns][kWinogradPanel].
template <std::int64_t kLength>
LOCKSTEP_INLINE void write_transposed(const float* from, std::int64_t stride, float* target) {
  FloatVector<kLength> rows[kLength];
#pragma GCC unroll 16
  for (std::int64_t i = 0; i < kLength; ++i) rows[i] = vector_at<kLength>(from + i * stride);
  transpose<kLength>(rows);
#pragma GCC unroll 16
  for (std::int64_t i = 0; i < kLength; ++i) vector_at<kLength>(target + i * kWinogradPanel) = rows[i];
}

/// @param weight  [outputs, 3, 3, channels]
/// @param panel   number of kWinogradPanel outputs
template <std::int64_t kLength, std::int64_t kSide>
LOCKSTEP_INLINE void write_plain_panel(const float* weight, std::int64_t outputs, std::int64_t channels,
                                       std::int64_t panel, float* target) {
  alignas(sizeof(FloatVector<kLength>)) float transposed[kTaps][kWinogradPanel][kWinogradPanel];  // channels, outputs
  for (std::int64_t c = 0; c < channels; c += kWinogradPanel) {
    for (std::int64_t tap = 0; tap < kTaps; ++tap) {
      for (std::int64_t o = 0; o < kWinogradPanel; o += kLength) {
        const float* const from = weight + ((panel * kWinogradPanel + o) * kTaps + tap) * channels + c;
        for (std::int64_t i = 0; i < kWinogradPanel; i += kLength) {
          write_transposed<kLength>(from + i, kTaps * channels, transposed[tap][i] + o);
        }
      }
    }
    for (std::int64_t i = 0; i < kWinogradPanel; ++i) {
      const float* taps[kTaps];
      for (std::int64_t tap = 0; tap < kTaps; ++tap) taps[tap] = transposed[tap][i];
      transform_kernels<kLength, kSide>(taps, target + (panel * channels + c + i) * kWinogradPanel,
                                        winograd_distance(channels * outputs));
    }
  }
}

/// The same with outputs and channels exchanged and the kernel turned by 180 degrees.
/// @param panel  number of kWinogradPanel channels
template <std::int64_t kLength, std::int64_t kSide>
LOCKSTEP_INLINE void write_turned_panel(const float* weight, std::int64_t outputs, std::int64_t channels,
                                        std::int64_t panel, float* target) {
  for (std::int64_t o = 0; o < outputs; ++o) {
    const float* taps[kTaps];
    for (std::int64_t tap = 0; tap < kTaps; ++tap) {
      taps[kTaps - 1 - tap] = weight + (o * kTaps + tap) * channels + panel * kWinogradPanel;
    }
    transform_kernels<kLength, kSide>(taps, target + (panel * outputs + o) * kWinogradPanel,
                                      winograd_distance(channels * outputs));
  }
}

template <std::int64_t kLength, std::int64_t kSide>
LOCKSTEP_INLINE void write_panel(const float* weight, std::int64_t outputs, std::int64_t channels, std::int64_t panel,
                                 bool is_turned, float* target) {
  if (is_turned) return write_turned_panel<kLength, kSide>(weight, outputs, channels, panel, target);
  write_plain_panel<kLength, kSide>(weight, outputs, channels, panel, target);
}

// --- a block of tiles ---

/// The place where the numbers of a tile and channel are: those of a panel are adjacent.
struct Layout {
  std::int64_t position, panel, tile;  // distances

  LOCKSTEP_INLINE std::int64_t place(std::int64_t tile_number, std::int64_t channel) const {
    return channel / kWinogradPanel * panel + tile_number * tile + channel % kWinogradPanel;
  }
};

/// [positions][kWinogradTiles][channels]
Layout by_tiles(std::int64_t channels) {
  return {.position = winograd_distance(kWinogradTiles * channels), .panel = kWinogradPanel, .tile = channels};
}

/// [positions][channels / kWinogradPanel][kSummedTiles][kWinogradPanel]
Layout by_panels(std::int64_t channels) {
  return {.position = winograd_distance(kSummedTiles * channels),
          .panel = kSummedTiles * kWinogradPanel,
          .tile = kWinogradPanel};
}

/// The pixels that the tiles read, of the channels [begin, end).
template <std::int64_t kLength, std::int64_t kSide>
LOCKSTEP_INLINE void write_image_tiles(const WinogradTask& task, std::int64_t first, std::int64_t count,
                                       std::int64_t begin, std::int64_t end, const Layout& layout, float* target) {
  constexpr std::int64_t kReach = Line<kSide>::kReach;
  for (std::int64_t t = 0; t < count; ++t) {
    const Tile tile = tile_of(task, first + t);
    const float* pixels[kReach][kReach];  // null = outside
    for (std::int64_t i = 0; i < kReach; ++i) {
      for (std::int64_t j = 0; j < kReach; ++j) {
        const std::int64_t row = tile.row + i - task.padding;
        const std::int64_t column = tile.column + j - task.padding;
        const bool is_inside = row >= 0 && row < task.height && column >= 0 && column < task.width;
        const std::int64_t place = (tile.sample * task.height + row) * task.width + column;
        pixels[i][j] = is_inside ? task.images + place * task.channels : nullptr;
      }
    }
    for (std::int64_t c = begin; c < end; c += kLength) {
      FloatVector<kLength> rows[kReach][kReach];
#pragma GCC unroll 6
      for (std::int64_t j = 0; j < kReach; ++j) {
        FloatVector<kLength> column[kReach];
#pragma GCC unroll 6
        for (std::int64_t i = 0; i < kReach; ++i) {
          column[i] = pixels[i][j] != nullptr ? vector_at<kLength>(pixels[i][j] + c) : FloatVector<kLength>{};
        }
        FloatVector<kLength> values[kReach];
        Line<kSide>::transform_pixels(column, values);
#pragma GCC unroll 6
        for (std::int64_t i = 0; i < kReach; ++i) rows[i][j] = values[i];
      }
      float* place = target + layout.place(t, c - begin);
#pragma GCC unroll 6
      for (std::int64_t i = 0; i < kReach; ++i) {
        FloatVector<kLength> values[kReach];
        Line<kSide>::transform_pixels(rows[i], values);
#pragma GCC unroll 6
        for (std::int64_t j = 0; j < kReach; ++j, place += layout.position) vector_at<kLength>(place) = values[j];
      }
    }
  }
}

void transform_images(const WinogradTask& task, std::int64_t first, std::int64_t count, std::int64_t begin,
                      std::int64_t end, const Layout& layout, float* target) {
  by_side(task.side, [&]<std::int64_t kSide>() {
    with_vectors<write_image_tiles<kShortVector, kSide>, write_image_tiles<kLongVector, kSide>>(
        task, first, count, begin, end, layout, target);
  });
}

/// kVectors vectors of each row of a product of matrices.
/// @param left    [count, length]. Rows behind the last tile, up to a multiple of the rows of a tile, are multiplied as
///                they are.
/// @param right   panels of [length][kWinogradPanel]
/// @param stride  from one row of the target to the next
template <std::int64_t kLength, std::int64_t kVectors>
LOCKSTEP_INLINE void write_products(const float* left, std::int64_t count, const float* right, std::int64_t length,
                                    float* target, std::int64_t stride) {
  constexpr std::int64_t kRows = kTileRows<kLength>.product;
  for (std::int64_t t = 0; t < count; t += kRows) {
    FloatVector<kLength> sums[kRows][kVectors] = {};
    add_product<kLength, kWinogradPanel>(left + t * length, length, 1, {right, length * kWinogradPanel}, length, sums);
#pragma GCC unroll 16
    for (std::int64_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (std::int64_t v = 0; v < kVectors; ++v) {
        vector_at<kLength>(target + (t + r) * stride + v * kLength) = sums[r][v];
      }
    }
  }
}

/// The products of all positions.
template <std::int64_t kLength>
LOCKSTEP_INLINE void multiply(const WinogradTask& task, std::int64_t count, const float* left, float* target) {
  constexpr std::int64_t kColumns = 2 * kLength;
  for (std::int64_t position = 0; position < winograd_positions(task.side); ++position) {
    const float* const rows = left + position * winograd_distance(kWinogradTiles * task.channels);
    const float* const panels = task.weight + position * winograd_distance(task.channels * task.outputs);
    float* const products = target + position * winograd_distance(kWinogradTiles * task.outputs);
    std::int64_t o = 0;
    for (; o + kColumns <= task.outputs; o += kColumns) {
      write_products<kLength, 2>(rows, count, panels + o * task.channels, task.channels, products + o, task.outputs);
    }
    if constexpr (kColumns > kWinogradPanel) {
      if (o == task.outputs) continue;
      write_products<kLength, 1>(rows, count, panels + o * task.channels, task.channels, products + o, task.outputs);
    }
  }
}

/// The output pixels of the products of all positions.
template <std::int64_t kLength, std::int64_t kSide>
LOCKSTEP_INLINE void transform_products(const WinogradTask& task, std::int64_t first, std::int64_t count,
                                        const float* from, float* result) {
  constexpr std::int64_t kReach = Line<kSide>::kReach;
  const std::int64_t stride = winograd_distance(kWinogradTiles * task.outputs);
  for (std::int64_t t = 0; t < count; ++t) {
    const Tile tile = tile_of(task, first + t);
    const std::int64_t upper_left = (tile.sample * task.out_height + tile.row) * task.out_width + tile.column;
    const std::int64_t rows = std::min(kSide, task.out_height - tile.row);
    const std::int64_t columns = std::min(kSide, task.out_width - tile.column);
    for (std::int64_t o = 0; o < task.outputs; o += kLength) {
      const float* const products = from + t * task.outputs + o;
      FloatVector<kLength> sums[kSide][kReach];
#pragma GCC unroll 6
      for (std::int64_t j = 0; j < kReach; ++j) {
        FloatVector<kLength> column[kReach];
#pragma GCC unroll 6
        for (std::int64_t i = 0; i < kReach; ++i) {
          column[i] = vector_at<kLength>(products + (i * kReach + j) * stride);
        }
        FloatVector<kLength> values[kSide];
        Line<kSide>::transform_products(column, values);
#pragma GCC unroll 4
        for (std::int64_t i = 0; i < kSide; ++i) sums[i][j] = values[i];
      }
      const FloatVector<kLength> bias =
          task.bias != nullptr ? vector_at<kLength>(task.bias + o) : FloatVector<kLength>{};
#pragma GCC unroll 4
      for (std::int64_t i = 0; i < kSide; ++i) {
        FloatVector<kLength> pixels[kSide];
        Line<kSide>::transform_products(sums[i], pixels);
#pragma GCC unroll 4
        for (std::int64_t j = 0; j < kSide; ++j) {
          if (i >= rows || j >= columns) continue;
          const std::int64_t place = (upper_left + i * task.out_width + j) * task.outputs + o;
          FloatVector<kLength> value = pixels[j] + bias;
          if (task.residual != nullptr) value += vector_at<kLength>(task.residual + place);
          if (task.has_relu) value = value < 0 ? FloatVector<kLength>{} : value;  // NaN stays
          vector_at<kLength>(result + place) = value;
        }
      }
    }
  }
}

// --- the gradient of the weight ---

/// The output's gradient of the tiles.
template <std::int64_t kLength, std::int64_t kSide>
LOCKSTEP_INLINE void transform_gradients(const WinogradTask& task, const float* gradients, std::int64_t first,
                                         std::int64_t count, const Layout& layout, float* target) {
  constexpr std::int64_t kReach = Line<kSide>::kReach;
  for (std::int64_t t = 0; t < count; ++t) {
    const Tile tile = tile_of(task, first + t);
    const float* const upper_left =
        gradients + ((tile.sample * task.out_height + tile.row) * task.out_width + tile.column) * task.outputs;
    for (std::int64_t o = 0; o < task.outputs; o += kLength) {
      FloatVector<kLength> rows[kReach][kSide];
#pragma GCC unroll 4
      for (std::int64_t j = 0; j < kSide; ++j) {
        FloatVector<kLength> column[kSide];
#pragma GCC unroll 4
        for (std::int64_t i = 0; i < kSide; ++i) {
          const bool is_inside = tile.row + i < task.out_height && tile.column + j < task.out_width;
          const float* const pixel = upper_left + (i * task.out_width + j) * task.outputs + o;
          column[i] = is_inside ? vector_at<kLength>(pixel) : FloatVector<kLength>{};
        }
        FloatVector<kLength> values[kReach];
        Line<kSide>::transform_gradients(column, values);
#pragma GCC unroll 6
        for (std::int64_t i = 0; i < kReach; ++i) rows[i][j] = values[i];
      }
      float* place = target + layout.place(t, o);
#pragma GCC unroll 6
      for (std::int64_t i = 0; i < kReach; ++i) {
        FloatVector<kLength> values[kReach];
        Line<kSide>::transform_gradients(rows[i], values);
#pragma GCC unroll 6
        for (std::int64_t j = 0; j < kReach; ++j, place += layout.position) vector_at<kLength>(place) = values[j];
      }
    }
  }
}

/// Adds kVectors vectors of each row of a product of matrices.
/// @param left, right  panels of [kSummedTiles][kWinogradPanel], of which `count` tiles are there
/// @param target       [outputs][stride]
template <std::int64_t kLength, std::int64_t kVectors>
LOCKSTEP_INLINE void add_sums(const float* left, const float* right, std::int64_t count, std::int64_t outputs,
                              float* target, std::int64_t stride) {
  constexpr std::int64_t kRows = kTileRows<kLength>.sum;
  constexpr std::int64_t kDistance = kSummedTiles * kWinogradPanel;
  for (std::int64_t o = 0; o < outputs; o += kRows, target += kRows * stride) {
    FloatVector<kLength> sums[kRows][kVectors] = {};
    add_product<kLength, kWinogradPanel>(left + o / kWinogradPanel * kDistance + o % kWinogradPanel, 1, kWinogradPanel,
                                         {right, kDistance}, count, sums);
#pragma GCC unroll 8
    for (std::int64_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (std::int64_t v = 0; v < kVectors; ++v) {
        vector_at<kLength>(target + r * stride + v * kLength) += sums[r][v];
      }
    }
  }
}

/// @param target  [positions][outputs][channels]
template <std::int64_t kLength>
LOCKSTEP_INLINE void add_products(std::int64_t positions, std::int64_t count, std::int64_t outputs,
                                  std::int64_t channels, const float* gradients, const float* images, float* target) {
  constexpr std::int64_t kColumns = 2 * kLength;
  for (std::int64_t position = 0; position < positions; ++position) {
    const float* const left = gradients + position * winograd_distance(outputs * kSummedTiles);
    const float* const right = images + position * winograd_distance(channels * kSummedTiles);
    float* const sums = target + position * winograd_distance(outputs * channels);
    std::int64_t c = 0;
    for (; c + kColumns <= channels; c += kColumns) {
      add_sums<kLength, 2>(left, right + c * kSummedTiles, count, outputs, sums + c, channels);
    }
    if constexpr (kColumns > kWinogradPanel) {
      if (c < channels) add_sums<kLength, 1>(left, right + c * kSummedTiles, count, outputs, sums + c, channels);
    }
  }
}

template <std::int64_t kLength, std::int64_t kSide>
LOCKSTEP_INLINE void transform_sums(const float* sums, std::int64_t outputs, std::int64_t channels, float* target,
                                    std::int64_t stride) {
  constexpr std::int64_t kReach = Line<kSide>::kReach;
  const std::int64_t distance = winograd_distance(outputs * channels);
  for (std::int64_t o = 0; o < outputs; ++o) {
    for (std::int64_t c = 0; c < channels; c += kLength) {
      const float* const from = sums + o * channels + c;
      float* const taps = target + o * kTaps * stride + c;
      FloatVector<kLength> rows[3][kReach];
      for (std::int64_t j = 0; j < kReach; ++j) {
        FloatVector<kLength> column[kReach];
#pragma GCC unroll 6
        for (std::int64_t i = 0; i < kReach; ++i) {
          column[i] = vector_at<kLength>(from + (i * kReach + j) * distance);
        }
        FloatVector<kLength> values[3];
        Line<kSide>::transform_sums(column, values);
        for (std::int64_t i = 0; i < 3; ++i) rows[i][j] = values[i];
      }
      for (std::int64_t i = 0; i < 3; ++i) {
        FloatVector<kLength> values[3];
        Line<kSide>::transform_sums(rows[i], values);
        for (std::int64_t j = 0; j < 3; ++j) vector_at<kLength>(taps + (3 * i + j) * stride) = values[j];
      }
    }
  }
}

}  // namespace

void write_winograd_panel(const float* weight, std::int64_t outputs, std::int64_t channels, std::int64_t panel,
                          bool is_turned, std::int64_t side, float* target) {
  by_side(side, [&]<std::int64_t kSide>() {
    with_vectors<write_panel<kShortVector, kSide>, write_panel<kLongVector, kSide>>(weight, outputs, channels, panel,
                                                                                    is_turned, target);
  });
}

void write_winograd_tiles(const WinogradTask& task, std::int64_t first, std::int64_t count, float* left,
                          float* products, float* result) {
  transform_images(task, first, count, 0, task.channels, by_tiles(task.channels), left);
  with_vectors<multiply<kShortVector>, multiply<kLongVector>>(task, count, left, products);
  by_side(task.side, [&]<std::int64_t kSide>() {
    with_vectors<transform_products<kShortVector, kSide>, transform_products<kLongVector, kSide>>(task, first, count,
                                                                                                  products, result);
  });
}

void add_winograd_tiles(const WinogradTask& task, const float* gradients, std::int64_t first, std::int64_t count,
                        std::int64_t begin, std::int64_t end, float* left, float* right, float* sums) {
  by_side(task.side, [&]<std::int64_t kSide>() {
    with_vectors<transform_gradients<kShortVector, kSide>, transform_gradients<kLongVector, kSide>>(
        task, gradients, first, count, by_panels(task.outputs), left);
  });
  transform_images(task, first, count, begin, end, by_panels(end - begin), right);
  with_vectors<add_products<kShortVector>, add_products<kLongVector>>(winograd_positions(task.side), count,
                                                                      task.outputs, end - begin, left, right, sums);
}

void write_winograd_taps(const float* sums, std::int64_t outputs, std::int64_t channels, std::int64_t side,
                         float* target, std::int64_t stride) {
  by_side(side, [&]<std::int64_t kSide>() {
    with_vectors<transform_sums<kShortVector, kSide>, transform_sums<kLongVector, kSide>>(sums, outputs, channels,
                                                                                          target, stride);
  });
}

}  // namespace lockstep::kernels
