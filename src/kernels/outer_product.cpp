// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/outer_product.hpp"

#include <algorithm>
#include <cstddef>
#include <stdexcept>

#include "core/numbers/processor_level.hpp"

namespace lockstep::kernels {

namespace {

constexpr std::int64_t kGrainElements = 32768;  // below it a second thread costs more than it saves

/// Past the caches: the result is larger than they are and is not read soon.
template <class V>
LOCKSTEP_INLINE void write_past_caches(const V& value, float* target) {
#if defined(__clang__)
  __builtin_nontemporal_store(value, reinterpret_cast<V*>(target));
#elif defined(__x86_64__)
  if constexpr (sizeof(V) == 16) {
    asm volatile("movntps %1, %0" : "=m"(*reinterpret_cast<V*>(target)) : "x"(value));
  } else {
    asm volatile("vmovntps %1, %0" : "=m"(*reinterpret_cast<V*>(target)) : "v"(value));
  }
#else
  *reinterpret_cast<V*>(target) = value;
#endif
}

/// Columns of `right` that are worked on together, as one block of memory: rows that lie a page apart would push each
/// other out of the first-level cache.
constexpr std::int64_t kPanelColumns = 64;
constexpr std::int64_t kTileRows = 4;

/// A part of the rows of the result.
struct RowRange {
  const OuterProduct& product;
  const float* panels;  ///< `right`, as [columns / kPanelColumns][samples][kPanelColumns]
  std::int64_t begin;
  std::int64_t end;
  float* result;
};

/// kRows x kPanelColumns of the result.
/// @param factors  [samples, kRows]
/// @param panel    [samples, kPanelColumns]
template <class V, std::int64_t kRows, bool kIsStreamed>
LOCKSTEP_INLINE void write_tile(const RowRange& part, const float* factors, const float* panel, float* target) {
  using Unaligned [[gnu::aligned(4), gnu::may_alias]] = V;
  constexpr auto kLength = static_cast<std::int64_t>(sizeof(V) / sizeof(float));
  constexpr std::int64_t kVectors = 4;
  for (std::int64_t first = 0; first < kPanelColumns; first += kVectors * kLength) {
    V sums[kRows][kVectors] = {};
    for (std::int64_t n = 0; n < part.product.samples; ++n) {
      const float* const values = panel + n * kPanelColumns + first;
      V row[kVectors];
      for (std::int64_t v = 0; v < kVectors; ++v) row[v] = *reinterpret_cast<const Unaligned*>(values + v * kLength);
      for (std::int64_t r = 0; r < kRows; ++r) {
        for (std::int64_t v = 0; v < kVectors; ++v) sums[r][v] += factors[n * kRows + r] * row[v];
      }
    }
    for (std::int64_t r = 0; r < kRows; ++r) {
      for (std::int64_t v = 0; v < kVectors; ++v) {
        float* const place = target + r * part.product.columns + first + v * kLength;
        if constexpr (kIsStreamed) {
          write_past_caches(sums[r][v], place);
        } else {
          *reinterpret_cast<Unaligned*>(place) = sums[r][v];
        }
      }
    }
  }
}

template <class V, std::int64_t kRows, bool kIsStreamed>
LOCKSTEP_INLINE void write_rows(const RowRange& part, std::int64_t row) {
  const OuterProduct& product = part.product;
  float factors[kMaxSamples * kRows];
  for (std::int64_t n = 0; n < product.samples; ++n) {
    for (std::int64_t r = 0; r < kRows; ++r) factors[n * kRows + r] = product.left[n * product.rows + row + r];
  }
  float* const target = part.result + row * product.columns;
  std::int64_t column = 0;
  for (; column + kPanelColumns <= product.columns; column += kPanelColumns) {
    write_tile<V, kRows, kIsStreamed>(part, factors, part.panels + column * product.samples, target + column);
  }
  for (; column < product.columns; ++column) {
    for (std::int64_t r = 0; r < kRows; ++r) {
      float sum = 0;
      for (std::int64_t n = 0; n < product.samples; ++n) {
        sum += factors[n * kRows + r] * product.right[n * product.columns + column];
      }
      target[r * product.columns + column] = sum;
    }
  }
}

template <std::size_t kWidth, bool kIsStreamed>
LOCKSTEP_INLINE void write_part(const RowRange& part) {
  using Vector [[gnu::vector_size(kWidth)]] = float;
  std::int64_t row = part.begin;
  for (; row + kTileRows <= part.end; row += kTileRows) write_rows<Vector, kTileRows, kIsStreamed>(part, row);
  for (; row < part.end; ++row) write_rows<Vector, 1, kIsStreamed>(part, row);
}

template <std::size_t kWidth>
LOCKSTEP_INLINE void run(const RowRange& part) {
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(part.result) % kWidth == 0 &&
                          static_cast<std::size_t>(part.product.columns) * sizeof(float) % kWidth == 0;
  if (is_aligned) {
    write_part<kWidth, true>(part);
  } else {
    write_part<kWidth, false>(part);
  }
}

void run_widest(const RowRange& part) {
  at_level<run<16>, run<32>, run<64>>(part);
#if defined(__x86_64__)
  __builtin_ia32_sfence();  // orders what was written past the caches like everything else
#endif
}

}  // namespace

std::vector<float> outer_product_panels(const OuterProduct& product) {
  std::vector<float> panels;
  panels.reserve(static_cast<std::size_t>(product.samples * product.columns));
  for (std::int64_t column = 0; column + kPanelColumns <= product.columns; column += kPanelColumns) {
    for (std::int64_t n = 0; n < product.samples; ++n) {
      const float* const from = product.right + n * product.columns + column;
      panels.insert(panels.end(), from, from + kPanelColumns);
    }
  }
  return panels;
}

std::int64_t outer_product_grain(const OuterProduct& product) {
  return std::max<std::int64_t>(1, kGrainElements / std::max<std::int64_t>(1, product.columns));
}

void write_outer_product(const OuterProduct& product, std::span<const float> panels, std::int64_t begin,
                         std::int64_t end, float* result) {
  if (product.samples > kMaxSamples) throw std::logic_error("the outer product has more samples than its maximum");
  run_widest({.product = product, .panels = panels.data(), .begin = begin, .end = end, .result = result});
}

}  // namespace lockstep::kernels
