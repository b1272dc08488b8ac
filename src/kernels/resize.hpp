// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::kernels {

/// Weights of one axis have 22 bits after the point.
inline constexpr int kWeightBits = 22;
/// Weights of an output pixel are padded with zeros to a multiple of this number.
inline constexpr int kTapGroup = 4;

/// The inputs of `count` output pixels of one axis.
struct AxisTaps {
  int count = 0;
  int taps = 0;                           ///< per output pixel, a multiple of kTapGroup
  const std::int32_t* starts = nullptr;   ///< [count] first input, relative to the given pixels
  const std::int32_t* weights = nullptr;  ///< [count, taps]
  /// [count, taps / 2, 2] the same for vector instructions: pairs of taps as 16-bit numbers, first the lower 15 bits of
  /// both weights, then the upper bits.
  const std::int32_t* pairs = nullptr;
};

/// Filters rows of pixels horizontally: [rows, in pixels, channels] to [rows, taps.count, channels]. Here and below, up
/// to Buffer::kSlack bytes beyond the end are read and written.
/// @param in_stride  bytes from a row to the next
void resize_rows(const std::uint8_t* in, std::size_t in_stride, int rows, int channels, const AxisTaps& taps,
                 std::uint8_t* out);
/// Filters columns: [in rows, row_bytes] to [taps.count, row_bytes].
/// @param in_rows  number of rows at `in`; rows of weight 0 beyond them are not read
void resize_columns(const std::uint8_t* in, int in_rows, std::size_t row_bytes, const AxisTaps& taps,
                    std::uint8_t* out);

// The reference implementations, for tests and for other processors.
void resize_rows_plain(const std::uint8_t* in, std::size_t in_stride, int rows, int channels, const AxisTaps& taps,
                       std::uint8_t* out);
void resize_columns_plain(const std::uint8_t* in, int in_rows, std::size_t row_bytes, const AxisTaps& taps,
                          std::uint8_t* out);

}  // namespace lockstep::kernels
