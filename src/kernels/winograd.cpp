// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/winograd.hpp"

#include <algorithm>

#include "kernels/vectors.hpp"

// The output is divided into tiles of 2x2 pixels. Each tile reads 4x4 pixels of the images. They are transformed into
// 16 numbers per channel, as is the weight. For each of these 16 positions, the numbers of a block of tiles are
// multiplied with the weight, a product of matrices. The 16 products of a tile are transformed into its output pixels.
// For the gradient of the weight, the output's gradient is transformed instead, and the sums are those over the tiles.
namespace lockstep::kernels {

namespace {

constexpr std::int64_t kTaps = 9;
constexpr std::int64_t kReach = 4;  // pixels that a tile reads, of each direction
constexpr std::int64_t kRows = 6;   // rows of the left matrix that are multiplied at once
constexpr std::int64_t kVectors = kWinogradPanel / kVector;
constexpr std::int64_t kSummedRows = 4;  // which divides kWinogradPanel

struct Tile {
  std::int64_t sample, row, column;  // position in the output of the upper left pixel
};

Tile tile_of(const WinogradTask& task, std::int64_t number) {
  const std::int64_t row = number / task.tile_columns();
  return {
      .sample = row / task.tile_rows(), .row = row % task.tile_rows() * 2, .column = number % task.tile_columns() * 2};
}

// --- the weight ---

/// One kernel of each of kWinogradPanel lanes.
/// @param taps  of the kernel, row by row: kWinogradPanel numbers each
/// @param target  kWinogradPanel numbers of the first position; those of the next one are `stride` behind
LOCKSTEP_VECTOR_KERNEL void transform_kernels(const float* const (&taps)[kTaps], float* target, std::int64_t stride) {
  for (std::int64_t v = 0; v < kWinogradPanel; v += kVector) {
    Vector rows[kReach][3];
    for (std::int64_t k = 0; k < 3; ++k) {
      const Vector outer = (load(taps[k] + v) + load(taps[6 + k] + v)) * 0.5F;
      const Vector inner = load(taps[3 + k] + v) * 0.5F;
      rows[0][k] = load(taps[k] + v);
      rows[1][k] = outer + inner;
      rows[2][k] = outer - inner;
      rows[3][k] = load(taps[6 + k] + v);
    }
    for (std::int64_t r = 0; r < kReach; ++r) {
      float* const place = target + r * kReach * stride + v;
      const Vector outer = (rows[r][0] + rows[r][2]) * 0.5F;
      const Vector inner = rows[r][1] * 0.5F;
      store(rows[r][0], place);
      store(outer + inner, place + stride);
      store(outer - inner, place + 2 * stride);
      store(rows[r][2], place + 3 * stride);
    }
  }
}

/// [8 rows][8], `stride` apart, as [8 columns][kWinogradPanel].
LOCKSTEP_VECTOR_KERNEL void write_transposed(const float* from, std::int64_t stride, float* target) {
  Vector rows[kVector];
#pragma GCC unroll 8
  for (std::int64_t i = 0; i < kVector; ++i) rows[i] = load(from + i * stride);
  transpose(rows);
#pragma GCC unroll 8
  for (std::int64_t i = 0; i < kVector; ++i) store(rows[i], target + i * kWinogradPanel);
}

/// @param weight  [outputs, 3, 3, channels]
/// @param panel   number of kWinogradPanel outputs
void write_panel(const float* weight, std::int64_t outputs, std::int64_t channels, std::int64_t panel, float* target) {
  alignas(sizeof(Vector)) float transposed[kTaps][kWinogradPanel][kWinogradPanel];  // channels, outputs
  for (std::int64_t c = 0; c < channels; c += kWinogradPanel) {
    for (std::int64_t tap = 0; tap < kTaps; ++tap) {
      for (std::int64_t o = 0; o < kWinogradPanel; o += kVector) {
        const float* const from = weight + ((panel * kWinogradPanel + o) * kTaps + tap) * channels + c;
        write_transposed(from, kTaps * channels, transposed[tap][0] + o);
        write_transposed(from + kVector, kTaps * channels, transposed[tap][kVector] + o);
      }
    }
    for (std::int64_t i = 0; i < kWinogradPanel; ++i) {
      const float* taps[kTaps];
      for (std::int64_t tap = 0; tap < kTaps; ++tap) taps[tap] = transposed[tap][i];
      transform_kernels(taps, target + (panel * channels + c + i) * kWinogradPanel, channels * outputs);
    }
  }
}

/// The same with outputs and channels exchanged and the kernel turned by 180 degrees.
/// @param panel  number of kWinogradPanel channels
void write_turned_panel(const float* weight, std::int64_t outputs, std::int64_t channels, std::int64_t panel,
                        float* target) {
  for (std::int64_t o = 0; o < outputs; ++o) {
    const float* taps[kTaps];
    for (std::int64_t tap = 0; tap < kTaps; ++tap) {
      taps[kTaps - 1 - tap] = weight + (o * kTaps + tap) * channels + panel * kWinogradPanel;
    }
    transform_kernels(taps, target + (panel * outputs + o) * kWinogradPanel, channels * outputs);
  }
}

// --- a block of tiles ---

/// The place where the numbers of a tile and channel are: those of a panel are adjacent.
struct Layout {
  std::int64_t position, panel, tile;  // distances

  std::int64_t place(std::int64_t tile_number, std::int64_t channel) const {
    return channel / kWinogradPanel * panel + tile_number * tile + channel % kWinogradPanel;
  }
};

/// [kWinogradPositions][kWinogradTiles][channels]
Layout by_tiles(std::int64_t channels) {
  return {.position = kWinogradTiles * channels, .panel = kWinogradPanel, .tile = channels};
}

/// [kWinogradPositions][channels / kWinogradPanel][kSummedTiles][kWinogradPanel]
Layout by_panels(std::int64_t channels) {
  return {.position = kSummedTiles * channels, .panel = kSummedTiles * kWinogradPanel, .tile = kWinogradPanel};
}

/// The pixels that the tiles read, of the channels [begin, end).
LOCKSTEP_VECTOR_KERNEL void transform_images(const WinogradTask& task, std::int64_t first, std::int64_t count,
                                             std::int64_t begin, std::int64_t end, const Layout& layout,
                                             float* target) {
  const std::int64_t stride = layout.position;
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
    for (std::int64_t c = begin; c < end; c += kVector) {
      Vector rows[kReach][kReach];
#pragma GCC unroll 4
      for (std::int64_t j = 0; j < kReach; ++j) {
        Vector column[kReach];
#pragma GCC unroll 4
        for (std::int64_t i = 0; i < kReach; ++i) {
          column[i] = pixels[i][j] != nullptr ? load(pixels[i][j] + c) : Vector{};
        }
        rows[0][j] = column[0] - column[2];
        rows[1][j] = column[1] + column[2];
        rows[2][j] = column[2] - column[1];
        rows[3][j] = column[1] - column[3];
      }
      float* place = target + layout.place(t, c - begin);
#pragma GCC unroll 4
      for (std::int64_t i = 0; i < kReach; ++i, place += kReach * stride) {
        store(rows[i][0] - rows[i][2], place);
        store(rows[i][1] + rows[i][2], place + stride);
        store(rows[i][2] - rows[i][1], place + 2 * stride);
        store(rows[i][1] - rows[i][3], place + 3 * stride);
      }
    }
  }
}

/// kRows x kWinogradPanel of a product of matrices.
/// @param left   kRows rows of `length` numbers
/// @param right  [length][kWinogradPanel]
LOCKSTEP_VECTOR_INLINE void write_product(const float* left, const float* right, std::int64_t length, float* target,
                                          std::int64_t stride) {
  Vector sums[kRows][kVectors] = {};
  add_product(left, length, 1, right, length, sums);
#pragma GCC unroll 8
  for (std::int64_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (std::int64_t v = 0; v < kVectors; ++v) store(sums[r][v], target + r * stride + v * kVector);
  }
}

/// The products of all positions. Rows behind the last tile, up to a multiple of kRows, are multiplied as they are.
LOCKSTEP_VECTOR_KERNEL void multiply(const WinogradTask& task, std::int64_t count, const float* left, float* target) {
  for (std::int64_t position = 0; position < kWinogradPositions; ++position) {
    const float* const rows = left + position * kWinogradTiles * task.channels;
    const float* const panels = task.weight + position * task.channels * task.outputs;
    float* const products = target + position * kWinogradTiles * task.outputs;
    for (std::int64_t o = 0; o < task.outputs; o += kWinogradPanel) {
      for (std::int64_t t = 0; t < count; t += kRows) {
        write_product(rows + t * task.channels, panels + o * task.channels, task.channels,
                      products + t * task.outputs + o, task.outputs);
      }
    }
  }
}

/// The output pixels of kWinogradPositions products.
LOCKSTEP_VECTOR_KERNEL void transform_products(const WinogradTask& task, std::int64_t first, std::int64_t count,
                                               const float* from, float* result) {
  const std::int64_t stride = kWinogradTiles * task.outputs;
  for (std::int64_t t = 0; t < count; ++t) {
    const Tile tile = tile_of(task, first + t);
    const std::int64_t upper_left = (tile.sample * task.out_height + tile.row) * task.out_width + tile.column;
    const std::int64_t rows = std::min<std::int64_t>(2, task.out_height - tile.row);
    const std::int64_t columns = std::min<std::int64_t>(2, task.out_width - tile.column);
    for (std::int64_t o = 0; o < task.outputs; o += kVector) {
      const float* const products = from + t * task.outputs + o;
      Vector sums[2][kReach];
#pragma GCC unroll 4
      for (std::int64_t j = 0; j < kReach; ++j) {
        const Vector first_inner = load(products + (kReach + j) * stride);
        const Vector second_inner = load(products + (2 * kReach + j) * stride);
        sums[0][j] = load(products + j * stride) + first_inner + second_inner;
        sums[1][j] = first_inner - second_inner - load(products + (3 * kReach + j) * stride);
      }
      const Vector bias = task.bias != nullptr ? load(task.bias + o) : Vector{};
#pragma GCC unroll 2
      for (std::int64_t i = 0; i < 2; ++i) {
        const Vector pixels[2] = {sums[i][0] + sums[i][1] + sums[i][2] + bias,
                                  sums[i][1] - sums[i][2] - sums[i][3] + bias};
#pragma GCC unroll 2
        for (std::int64_t j = 0; j < 2; ++j) {
          if (i >= rows || j >= columns) continue;
          const std::int64_t place = (upper_left + i * task.out_width + j) * task.outputs + o;
          Vector value = pixels[j];
          if (task.residual != nullptr) value += load(task.residual + place);
          if (task.has_relu) value = value < 0 ? Vector{} : value;  // NaN stays
          store(value, result + place);
        }
      }
    }
  }
}

// --- the gradient of the weight ---

/// The output's gradient of the tiles.
LOCKSTEP_VECTOR_KERNEL void transform_gradients(const WinogradTask& task, const float* gradients, std::int64_t first,
                                                std::int64_t count, const Layout& layout, float* target) {
  const std::int64_t stride = layout.position;
  for (std::int64_t t = 0; t < count; ++t) {
    const Tile tile = tile_of(task, first + t);
    const float* const upper_left =
        gradients + ((tile.sample * task.out_height + tile.row) * task.out_width + tile.column) * task.outputs;
    const bool has_row = tile.row + 1 < task.out_height;
    const bool has_column = tile.column + 1 < task.out_width;
    const float* const lower_left = upper_left + task.out_width * task.outputs;
    for (std::int64_t o = 0; o < task.outputs; o += kVector) {
      const Vector upper[2] = {load(upper_left + o), has_column ? load(upper_left + task.outputs + o) : Vector{}};
      const Vector lower[2] = {has_row ? load(lower_left + o) : Vector{},
                               has_row && has_column ? load(lower_left + task.outputs + o) : Vector{}};
      Vector rows[kReach][2];
#pragma GCC unroll 2
      for (std::int64_t j = 0; j < 2; ++j) {
        rows[0][j] = upper[j];
        rows[1][j] = upper[j] + lower[j];
        rows[2][j] = upper[j] - lower[j];
        rows[3][j] = -lower[j];
      }
      float* place = target + layout.place(t, o);
#pragma GCC unroll 4
      for (std::int64_t i = 0; i < kReach; ++i, place += kReach * stride) {
        store(rows[i][0], place);
        store(rows[i][0] + rows[i][1], place + stride);
        store(rows[i][0] - rows[i][1], place + 2 * stride);
        store(-rows[i][1], place + 3 * stride);
      }
    }
  }
}

/// Adds kSummedRows x kWinogradPanel of a product of matrices.
/// @param left, right  [length][kWinogradPanel], of which the rows begin at `left`
LOCKSTEP_VECTOR_INLINE void add_sums(const float* left, const float* right, std::int64_t length, float* target,
                                     std::int64_t stride) {
  Vector sums[kSummedRows][kVectors] = {};
  add_product(left, 1, kWinogradPanel, right, length, sums);
#pragma GCC unroll 8
  for (std::int64_t r = 0; r < kSummedRows; ++r) {
#pragma GCC unroll 8
    for (std::int64_t v = 0; v < kVectors; ++v) {
      float* const place = target + r * stride + v * kVector;
      store(load(place) + sums[r][v], place);
    }
  }
}

/// @param target  [kWinogradPositions][outputs][channels]
LOCKSTEP_VECTOR_KERNEL void add_products(std::int64_t count, std::int64_t outputs, std::int64_t channels,
                                         const float* gradients, const float* images, float* target) {
  for (std::int64_t position = 0; position < kWinogradPositions; ++position) {
    for (std::int64_t c = 0; c < channels; c += kWinogradPanel) {
      const float* const right = images + (position * channels + c) * kSummedTiles;
      for (std::int64_t o = 0; o < outputs; o += kSummedRows) {
        const float* const left =
            gradients + (position * outputs + o / kWinogradPanel * kWinogradPanel) * kSummedTiles + o % kWinogradPanel;
        add_sums(left, right, count, target + (position * outputs + o) * channels + c, channels);
      }
    }
  }
}

LOCKSTEP_VECTOR_KERNEL void transform_sums(const float* sums, std::int64_t outputs, std::int64_t channels,
                                           float* target, std::int64_t stride) {
  const std::int64_t distance = outputs * channels;
  for (std::int64_t o = 0; o < outputs; ++o) {
    for (std::int64_t c = 0; c < channels; c += kVector) {
      const float* const from = sums + o * channels + c;
      float* const taps = target + o * kTaps * stride + c;
      Vector rows[3][kReach];
      for (std::int64_t j = 0; j < kReach; ++j) {
        const Vector first_inner = load(from + (kReach + j) * distance) * 0.5F;
        const Vector second_inner = load(from + (2 * kReach + j) * distance) * 0.5F;
        rows[0][j] = load(from + j * distance) + (first_inner + second_inner);
        rows[1][j] = first_inner - second_inner;
        rows[2][j] = (first_inner + second_inner) + load(from + (3 * kReach + j) * distance);
      }
      for (std::int64_t i = 0; i < 3; ++i) {
        const Vector first_inner = rows[i][1] * 0.5F;
        const Vector second_inner = rows[i][2] * 0.5F;
        store(rows[i][0] + (first_inner + second_inner), taps + (3 * i) * stride);
        store(first_inner - second_inner, taps + (3 * i + 1) * stride);
        store((first_inner + second_inner) + rows[i][3], taps + (3 * i + 2) * stride);
      }
    }
  }
}

}  // namespace

void write_winograd_panel(const float* weight, std::int64_t outputs, std::int64_t channels, std::int64_t panel,
                          bool is_turned, float* target) {
  (is_turned ? write_turned_panel : write_panel)(weight, outputs, channels, panel, target);
}

void write_winograd_tiles(const WinogradTask& task, std::int64_t first, std::int64_t count, float* left,
                          float* products, float* result) {
  transform_images(task, first, count, 0, task.channels, by_tiles(task.channels), left);
  multiply(task, count, left, products);
  transform_products(task, first, count, products, result);
}

void add_winograd_tiles(const WinogradTask& task, const float* gradients, std::int64_t first, std::int64_t count,
                        std::int64_t begin, std::int64_t end, float* left, float* right, float* sums) {
  transform_gradients(task, gradients, first, count, by_panels(task.outputs), left);
  transform_images(task, first, count, begin, end, by_panels(end - begin), right);
  add_products(count, task.outputs, end - begin, left, right, sums);
}

void write_winograd_taps(const float* sums, std::int64_t outputs, std::int64_t channels, float* target,
                         std::int64_t stride) {
  transform_sums(sums, outputs, channels, target, stride);
}

}  // namespace lockstep::kernels
