// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

// The parts of winograd.hpp that compute.
namespace lockstep::kernels {

/// Tiles that cover `pixels` output pixels of one direction.
constexpr std::int64_t winograd_tiles(std::int64_t pixels, std::int64_t side) { return (pixels + side - 1) / side; }

/// A convolution with a kernel of 3x3 and a stride of 1. Images have their channels innermost.
struct WinogradTask {
  std::int64_t side;                ///< a tile has side x side output pixels: 2 or 4
  const float* images;              ///< [samples, height, width, channels]
  const float* weight = nullptr;    ///< [positions][outputs / kWinogradPanel][channels][kWinogradPanel]
  const float* bias = nullptr;      ///< [outputs]; null = none
  const float* residual = nullptr;  ///< [samples, out_height, out_width, outputs], which is added; null = none
  std::int64_t height, width;
  std::int64_t channels;  ///< like outputs, a multiple of kWinogradPanel
  std::int64_t out_height, out_width, outputs;
  std::int64_t padding;
  bool has_relu = false;

  std::int64_t tile_rows() const { return winograd_tiles(out_height, side); }
  std::int64_t tile_columns() const { return winograd_tiles(out_width, side); }
  std::int64_t tiles(std::int64_t samples) const { return samples * tile_rows() * tile_columns(); }
};

/// Products of a tile for each input and output channel: the pixels of the images that it reads.
constexpr std::int64_t winograd_positions(std::int64_t side) { return (side + 2) * (side + 2); }

/// The distance in memory of positions that have `count` numbers each. The numbers of a tile would otherwise be a
/// multiple of 4096 bytes apart, of which caches keep few at a time.
constexpr std::int64_t winograd_distance(std::int64_t count) { return count + 16; }

inline constexpr std::int64_t kWinogradPanel = 16;  // columns of a matrix that are adjacent in memory
inline constexpr std::int64_t kWinogradTiles = 48;  // tiles in a block; those of one position stay in the caches
inline constexpr std::int64_t kSummedTiles = 96;    // likewise, for the gradient of the weight

/// kWinogradPanel columns of the weight of a task.
/// @param weight     [outputs, 3, 3, channels]
/// @param panel      number of kWinogradPanel outputs; turned, of channels
/// @param is_turned  for the gradient of the input: outputs and channels change places
void write_winograd_panel(const float* weight, std::int64_t outputs, std::int64_t channels, std::int64_t panel,
                          bool is_turned, std::int64_t side, float* target);

/// The output pixels of `count` tiles, at most kWinogradTiles.
/// @param left      memory for [positions][kWinogradTiles][channels]
/// @param products  memory for [positions][kWinogradTiles][outputs]
void write_winograd_tiles(const WinogradTask& task, std::int64_t first, std::int64_t count, float* left,
                          float* products, float* result);

/// Adds what `count` tiles, at most kSummedTiles, contribute to the gradient of the weight of the channels [begin,
/// end).
/// @param gradients  of the output
/// @param left       memory for [positions][outputs][kSummedTiles]
/// @param right      memory for [positions][end - begin][kSummedTiles]
/// @param sums       [positions][outputs][end - begin]
void add_winograd_tiles(const WinogradTask& task, const float* gradients, std::int64_t first, std::int64_t count,
                        std::int64_t begin, std::int64_t end, float* left, float* right, float* sums);

/// The gradient of the weight of some channels.
/// @param sums    [positions][outputs][channels]
/// @param target  [outputs][9], of which each is `stride` behind the one before: `channels` numbers
void write_winograd_taps(const float* sums, std::int64_t outputs, std::int64_t channels, std::int64_t side,
                         float* target, std::int64_t stride);

}  // namespace lockstep::kernels
