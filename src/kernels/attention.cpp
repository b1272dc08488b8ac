// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/attention.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/exponential.hpp"
#include "kernels/vectors.hpp"

// The products are those of small matrices that stay in the caches: the right one is packed in panels of 16 columns,
// and a tile of its product is summed in registers.
// Source of the gradient: Dao et al., "FlashAttention", 2022, appendix B.2.
namespace lockstep::kernels {

namespace {

constexpr std::int64_t kPanel = 16;
constexpr std::int64_t kBlockQueries = 264;  // block queries: whose weights stay in the second-level cache
constexpr std::int64_t kBlockRows = 6;       // divides a block of queries

static_assert(kPanel == kAttentionFeatures);

/// Rows of a tile of 2 vectors. Its sums fill 12 of 16 registers, or 24 of the 32 of AVX-512.
template <std::int64_t kLength>
constexpr std::int64_t kTileRows = 6;
template <>
constexpr std::int64_t kTileRows<kLongVector> = 12;

LOCKSTEP_INLINE std::int64_t padded(std::int64_t count) { return (count + kPanel - 1) / kPanel * kPanel; }

/// Rows of memory that lie `stride` elements apart.
template <class T>
struct Rows {
  T* values;
  std::int64_t stride;
  std::int64_t count;

  LOCKSTEP_INLINE T* row(std::int64_t i) const { return values + i * stride; }
};

/// The left factor of a product: its element (r, d) is values[r * row_step + d * depth_step].
struct Left {
  const float* values;
  std::int64_t row_step;
  std::int64_t depth_step;
  std::int64_t rows;
};

Left as_left(const Rows<const float>& rows) { return {rows.values, rows.stride, 1, rows.count}; }

/// The rows as a right factor: [features / kPanel][rows][kPanel].
LOCKSTEP_INLINE void pack_rows(const Rows<const float>& rows, std::int64_t features, float* target) {
  for (std::int64_t e = 0; e < features; e += kPanel) {
    for (std::int64_t i = 0; i < rows.count; ++i, target += kPanel) {
      std::memcpy(target, rows.row(i) + e, kPanel * sizeof(float));
    }
  }
}

/// The transposed rows as a right factor: [rows / kPanel][features][kPanel], with zeros behind the last row.
template <std::int64_t kLength>
LOCKSTEP_INLINE void pack_columns(const Rows<const float>& rows, std::int64_t features, float* target) {
  for (std::int64_t first = 0; first < rows.count; first += kLength) {
    float* const panel = target + first / kPanel * kPanel * features + first % kPanel;
    for (std::int64_t e = 0; e < features; e += kLength) {
      FloatVector<kLength> tile[kLength];
#pragma GCC unroll 16
      for (std::int64_t i = 0; i < kLength; ++i) {
        tile[i] = first + i < rows.count ? vector_at<kLength>(rows.row(first + i) + e) : FloatVector<kLength>{};
      }
      transpose<kLength>(tile);
#pragma GCC unroll 16
      for (std::int64_t i = 0; i < kLength; ++i) vector_at<kLength>(panel + (e + i) * kPanel) = tile[i];
    }
  }
  if ((rows.count + kLength - 1) / kLength % (kPanel / kLength) == 0) return;
  float* const rest = target + rows.count / kPanel * kPanel * features + kLength;
  for (std::int64_t e = 0; e < features; ++e) vector_at<kLength>(rest + e * kPanel) = FloatVector<kLength>{};
}

/// The place to which a product is written.
struct Target {
  float* values;
  std::int64_t stride;
  float factor = 1;
  bool adds = false;
};

template <std::int64_t kLength, std::int64_t kVectors, std::int64_t kRows>
LOCKSTEP_INLINE void write_tile(const Left& left, std::int64_t first, const RightFactor& right, std::int64_t depth,
                                const Target& target, std::int64_t column) {
  FloatVector<kLength> sums[kRows][kVectors] = {};
  add_product<kLength, kPanel>(left.values + first * left.row_step, left.row_step, left.depth_step, right, depth, sums);
  // All products are rounded before the first sum: one instruction for both would change the bits.
#pragma GCC unroll 16
  for (std::int64_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (std::int64_t v = 0; v < kVectors; ++v) sums[r][v] *= target.factor;
  }
#pragma GCC unroll 16
  for (std::int64_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (std::int64_t v = 0; v < kVectors; ++v) {
      float* const place = target.values + (first + r) * target.stride + column + v * kLength;
      vector_at<kLength>(place) = target.adds ? vector_at<kLength>(place) + sums[r][v] : sums[r][v];
    }
  }
}

/// kVectors vectors of each row from `first` on: tiles of kRows rows, and smaller ones for the last rows.
template <std::int64_t kLength, std::int64_t kVectors, std::int64_t kRows>
LOCKSTEP_INLINE void write_tiles(const Left& left, std::int64_t first, const RightFactor& right, std::int64_t depth,
                                 const Target& target, std::int64_t column) {
  for (; first + kRows <= left.rows; first += kRows) {
    write_tile<kLength, kVectors, kRows>(left, first, right, depth, target, column);
  }
  constexpr std::int64_t kFewer = kRows > 6 ? kRows / 2 : kRows - 1;
  if constexpr (kFewer > 0) write_tiles<kLength, kVectors, kFewer>(left, first, right, depth, target, column);
}

/// left * right, or added to the target.
/// @param right    packed
/// @param columns  of the right factor; a multiple of kPanel
template <std::int64_t kLength>
LOCKSTEP_INLINE void write_product(const Left& left, const float* right, std::int64_t columns, std::int64_t depth,
                                   const Target& target) {
  constexpr std::int64_t kColumns = 2 * kLength;
  std::int64_t column = 0;
  for (; column + kColumns <= columns; column += kColumns) {
    const RightFactor panels{right + column * depth, kPanel * depth};
    write_tiles<kLength, 2, kTileRows<kLength>>(left, 0, panels, depth, target, column);
  }
  if constexpr (kColumns > kPanel) {  // the last panel
    if (column == columns) return;
    write_tiles<kLength, 1, kTileRows<kLength>>(left, 0, {right + column * depth, 0}, depth, target, column);
  }
}

template <std::int64_t kLength>
LOCKSTEP_INLINE float sum_of(const FloatVector<kLength>& value) {
  float sum = 0;
  for (std::int64_t i = 0; i < kLength; ++i) sum += value[i];
  return sum;
}

/// e^(scale x - shift) in place of the products x of a query with the keys; 0 behind the last key.
LOCKSTEP_INLINE void write_weights(float* row, std::int64_t keys, float scale, float shift) {
  const std::int64_t all = padded(keys);
#pragma GCC ivdep
  for (std::int64_t k = 0; k < all; ++k) {
    const float x = scale * row[k] - shift;
    row[k] = exponential(x < -87.0F ? -87.0F : x);
  }
  for (std::int64_t k = keys; k < all; ++k) row[k] = 0;
}

/// The softmax of a row.
/// @return  the logarithm of the divisor plus what was subtracted
template <std::int64_t kLength>
LOCKSTEP_INLINE float write_softmax(float* row, std::int64_t keys, float scale) {
  const std::int64_t all = padded(keys);
  for (std::int64_t k = keys; k < all; ++k) row[k] = -std::numeric_limits<float>::infinity();
  FloatVector<kLength> largest = vector_at<kLength>(row);
  for (std::int64_t k = kLength; k < all; k += kLength) {
    const FloatVector<kLength> next = vector_at<kLength>(row + k);
    largest = next > largest ? next : largest;
  }
  float maximum = largest[0];
  for (std::int64_t i = 1; i < kLength; ++i) maximum = std::max(maximum, static_cast<float>(largest[i]));
  write_weights(row, keys, scale, scale * maximum);
  FloatVector<kLength> sums = {};
  for (std::int64_t k = 0; k < all; k += kLength) sums += vector_at<kLength>(row + k);
  const float sum = sum_of<kLength>(sums);
  const float factor = 1.0F / sum;
  for (std::int64_t k = 0; k < all; k += kLength) vector_at<kLength>(row + k) = factor * vector_at<kLength>(row + k);
  return scale * maximum + std::log(sum);
}

/// @param rows      products of queries with the keys; their stride is padded(keys)
/// @param log_sums  of each row
template <std::int64_t kLength>
LOCKSTEP_INLINE void write_softmax_rows(const Rows<float>& rows, std::int64_t keys, float scale, float* log_sums) {
  for (std::int64_t i = 0; i < rows.count; ++i) log_sums[i] = write_softmax<kLength>(rows.row(i), keys, scale);
}

template <std::int64_t kLength>
LOCKSTEP_INLINE float dot(const float* a, const float* b, std::int64_t count) {
  FloatVector<kLength> sums = {};
  for (std::int64_t i = 0; i < count; i += kLength) sums += vector_at<kLength>(a + i) * vector_at<kLength>(b + i);
  return sum_of<kLength>(sums);
}

/// Rows of the output and of its gradient.
struct OutputRows {
  Rows<const float> output;
  Rows<const float> gradient;
  const float* log_sums;
};

/// The softmax in place of the products of queries with the keys, and weights * (gradients - mean) in place of the
/// gradients of the weights.
/// @param weights  their stride is padded(keys), as is that of the gradients
template <std::int64_t kLength>
LOCKSTEP_INLINE void write_softmax_gradients(const OutputRows& from, std::int64_t features, std::int64_t keys,
                                             float scale, float* weights, float* gradients) {
  const std::int64_t all = padded(keys);
  for (std::int64_t i = 0; i < from.output.count; ++i, weights += all, gradients += all) {
    write_weights(weights, keys, scale, from.log_sums[i]);
    const float mean = dot<kLength>(from.gradient.row(i), from.output.row(i), features);
    for (std::int64_t k = 0; k < all; k += kLength) {
      const FloatVector<kLength> difference = vector_at<kLength>(gradients + k) - mean;
      vector_at<kLength>(gradients + k) = vector_at<kLength>(weights + k) * difference;
    }
  }
}

constexpr auto pack = at_level<pack_rows>;
constexpr auto pack_transposed = with_vectors<pack_columns<kShortVector>, pack_columns<kLongVector>>;
constexpr auto multiply = with_vectors<write_product<kShortVector>, write_product<kLongVector>>;
constexpr auto softmax = with_vectors<write_softmax_rows<kShortVector>, write_softmax_rows<kLongVector>>;
constexpr auto softmax_gradients =
    with_vectors<write_softmax_gradients<kShortVector>, write_softmax_gradients<kLongVector>>;

/// Memory of a thread.
class Scratch {
 public:
  float* take(std::int64_t count) {
    std::vector<float>& block = blocks_.emplace_back();
    block.resize(static_cast<std::size_t>(count));
    return block.data();
  }

 private:
  std::vector<std::vector<float>> blocks_;
};

enum class Projection { query, key, value };

/// One head of one sample.
struct Head {
  const SelfAttention& attention;
  std::int64_t sample;
  std::int64_t head;

  std::int64_t stride() const { return 3 * attention.heads * attention.features; }
  template <class T>
  Rows<T> part(T* qkv, Projection part, std::int64_t count) const {
    const auto number = static_cast<std::int64_t>(part);
    return {qkv + sample * attention.tokens * stride() + (number * attention.heads + head) * attention.features,
            stride(), count};
  }
  Rows<const float> queries() const { return part(attention.qkv, Projection::query, attention.queries); }
  Rows<const float> keys() const { return part(attention.qkv, Projection::key, attention.tokens); }
  Rows<const float> values() const { return part(attention.qkv, Projection::value, attention.tokens); }
  /// The rows of a tensor like the output.
  template <class T>
  Rows<T> output(T* values) const {
    return {values + (sample * attention.queries * attention.heads + head) * attention.features,
            attention.heads * attention.features, attention.queries};
  }
  template <class T>
  T* log_sums(T* values) const {
    return values + (sample * attention.heads + head) * attention.queries;
  }
};

template <class T>
Rows<T> slice(const Rows<T>& rows, std::int64_t begin, std::int64_t end) {
  return {rows.row(begin), rows.stride, end - begin};
}

float scale_of(const SelfAttention& attention) { return 1.0F / std::sqrt(static_cast<float>(attention.features)); }

/// Queries that are worked on together: blocks of about the same size.
std::int64_t block_of(std::int64_t queries, std::int64_t largest) {
  const std::int64_t blocks = std::max<std::int64_t>(1, (queries + largest - 1) / largest);
  const std::int64_t rows = (queries + blocks - 1) / blocks;
  return (rows + kBlockRows - 1) / kBlockRows * kBlockRows;
}

class Forward {
 public:
  explicit Forward(const SelfAttention& attention)
      : attention_(attention),
        keys_(scratch_.take(padded(attention.tokens) * attention.features)),
        values_(scratch_.take(attention.tokens * attention.features)),
        weights_(scratch_.take(kRows * padded(attention.tokens))) {}

  void write(const Head& head, float* output, float* log_sums) {
    const std::int64_t all = padded(attention_.tokens);
    pack_transposed(head.keys(), attention_.features, keys_);
    pack(head.values(), attention_.features, values_);
    const Rows<float> target = head.output(output);
    for (std::int64_t begin = 0; begin < attention_.queries; begin += kRows) {
      const std::int64_t end = std::min(attention_.queries, begin + kRows);
      multiply(as_left(slice(head.queries(), begin, end)), keys_, all, attention_.features, {weights_, all});
      softmax({weights_, all, end - begin}, attention_.tokens, scale_of(attention_), head.log_sums(log_sums) + begin);
      multiply({weights_, all, 1, end - begin}, values_, attention_.features, attention_.tokens,
               {target.row(begin), target.stride});
    }
  }

 private:
  static constexpr std::int64_t kRows = 24;  // rows: whose weights stay in the first-level cache

  const SelfAttention& attention_;
  Scratch scratch_;
  float* keys_;
  float* values_;
  float* weights_;
};

class Backward {
 public:
  explicit Backward(const SelfAttention& attention)
      : attention_(attention),
        rows_(block_of(attention.queries, kBlockQueries)),
        keys_(scratch_.take(attention.tokens * attention.features)),
        keys_transposed_(scratch_.take(padded(attention.tokens) * attention.features)),
        values_transposed_(scratch_.take(padded(attention.tokens) * attention.features)),
        queries_(scratch_.take(rows_ * attention.features)),
        gradients_(scratch_.take(rows_ * attention.features)),
        weights_(scratch_.take(rows_ * padded(attention.tokens))),
        weight_gradients_(scratch_.take(rows_ * padded(attention.tokens))) {}

  void write(const Head& head, const float* output, const float* log_sums, const float* gradient, float* qkv_gradient) {
    const std::int64_t all = padded(attention_.tokens);
    const float scale = scale_of(attention_);
    pack(head.keys(), attention_.features, keys_);
    pack_transposed(head.keys(), attention_.features, keys_transposed_);
    pack_transposed(head.values(), attention_.features, values_transposed_);
    const Rows<float> to_queries = head.part(qkv_gradient, Projection::query, attention_.tokens);
    const Rows<float> to_keys = head.part(qkv_gradient, Projection::key, attention_.tokens);
    const Rows<float> to_values = head.part(qkv_gradient, Projection::value, attention_.tokens);
    for (std::int64_t begin = 0; begin < attention_.queries; begin += rows_) {
      const std::int64_t end = std::min(attention_.queries, begin + rows_);
      const std::int64_t rows = end - begin;
      const Rows<const float> queries = slice(head.queries(), begin, end);
      const Rows<const float> gradients = slice(head.output(gradient), begin, end);
      const Rows<const float> outputs = slice(head.output(output), begin, end);
      pack(queries, attention_.features, queries_);
      pack(gradients, attention_.features, gradients_);
      multiply(as_left(queries), keys_transposed_, all, attention_.features, {weights_, all});
      multiply(as_left(gradients), values_transposed_, all, attention_.features, {weight_gradients_, all});
      softmax_gradients({outputs, gradients, head.log_sums(log_sums) + begin}, attention_.features, attention_.tokens,
                        scale, weights_, weight_gradients_);
      multiply({weight_gradients_, all, 1, rows}, keys_, attention_.features, attention_.tokens,
               {to_queries.row(begin), to_queries.stride, scale});
      const bool adds = begin > 0;
      multiply({weight_gradients_, 1, all, attention_.tokens}, queries_, attention_.features, rows,
               {to_keys.values, to_keys.stride, scale, adds});
      multiply({weights_, 1, all, attention_.tokens}, gradients_, attention_.features, rows,
               {to_values.values, to_values.stride, 1, adds});
    }
    for (std::int64_t i = attention_.queries; i < attention_.tokens; ++i) {
      std::fill(to_queries.row(i), to_queries.row(i) + attention_.features, 0.0F);
    }
  }

 private:
  const SelfAttention& attention_;
  std::int64_t rows_;
  Scratch scratch_;
  float* keys_;
  float* keys_transposed_;
  float* values_transposed_;
  float* queries_;
  float* gradients_;
  float* weights_;
  float* weight_gradients_;
};

}  // namespace

void write_self_attention(const SelfAttention& attention, const HeadRange& range, float* output, float* log_sums) {
  Forward work(attention);
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    work.write({attention, i / attention.heads, i % attention.heads}, output, log_sums);
  }
}

void write_self_attention_gradient(const SelfAttention& attention, const HeadRange& range, const float* output,
                                   const float* log_sums, const float* gradient, float* qkv_gradient) {
  Backward work(attention);
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    work.write({attention, i / attention.heads, i % attention.heads}, output, log_sums, gradient, qkv_gradient);
  }
}

}  // namespace lockstep::kernels
