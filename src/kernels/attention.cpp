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
// and a tile of 6 rows of a panel is summed in registers.
// Source of the gradient: Dao et al., "FlashAttention", 2022, appendix B.2.
namespace lockstep::kernels {

namespace {

constexpr std::int64_t kVectors = 2;  // of a row of a tile, whose sums then fill 12 of 16 registers
constexpr std::int64_t kTileRows = 6;
constexpr std::int64_t kPanel = kVectors * kVector;
constexpr std::int64_t kBlockQueries = 264;  // whose weights stay in the second-level cache

static_assert(kPanel == kAttentionFeatures);

std::int64_t padded(std::int64_t count) { return (count + kPanel - 1) / kPanel * kPanel; }

/// Rows of memory that lie `stride` elements apart.
template <class T>
struct Rows {
  T* values;
  std::int64_t stride;
  std::int64_t count;

  T* row(std::int64_t i) const { return values + i * stride; }
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
LOCKSTEP_VECTOR_KERNEL void pack(const Rows<const float>& rows, std::int64_t features, float* to) {
  for (std::int64_t e = 0; e < features; e += kPanel) {
    for (std::int64_t i = 0; i < rows.count; ++i, to += kPanel) {
      std::memcpy(to, rows.row(i) + e, kPanel * sizeof(float));
    }
  }
}

/// The transposed rows as a right factor: [rows / kPanel][features][kPanel], with zeros behind the last row.
LOCKSTEP_VECTOR_KERNEL void pack_transposed(const Rows<const float>& rows, std::int64_t features, float* to) {
  for (std::int64_t first = 0; first < rows.count; first += kVector) {
    float* const panel = to + first / kPanel * kPanel * features + first % kPanel;
    for (std::int64_t e = 0; e < features; e += kVector) {
      Vector tile[kVector];
#pragma GCC unroll 8
      for (std::int64_t i = 0; i < kVector; ++i) {
        tile[i] = first + i < rows.count ? load(rows.row(first + i) + e) : Vector{};
      }
      transpose(tile);
#pragma GCC unroll 8
      for (std::int64_t i = 0; i < kVector; ++i) store(tile[i], panel + (e + i) * kPanel);
    }
  }
  if ((rows.count + kVector - 1) / kVector % kVectors == 0) return;
  float* const rest = to + rows.count / kPanel * kPanel * features + kVector;
  for (std::int64_t e = 0; e < features; ++e) store(Vector{}, rest + e * kPanel);
}

/// What a product is written to.
struct Target {
  float* values;
  std::int64_t stride;
  float factor = 1;
  bool adds = false;
};

template <std::int64_t kRows>
LOCKSTEP_VECTOR_INLINE void write_tile(const Left& left, std::int64_t first, const float* panel, std::int64_t depth,
                                       const Target& to, std::int64_t column) {
  Vector sums[kRows][kVectors] = {};
  const float* from = left.values + first * left.row_step;
  for (std::int64_t d = 0; d < depth; ++d) {
    const Vector row[kVectors] = {load(panel), load(panel + kVector)};
#pragma GCC unroll 8
    for (std::int64_t r = 0; r < kRows; ++r) {
      const float factor = from[r * left.row_step];
      sums[r][0] += factor * row[0];
      sums[r][1] += factor * row[1];
    }
    from += left.depth_step;
    panel += kPanel;
  }
#pragma GCC unroll 8
  for (std::int64_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (std::int64_t v = 0; v < kVectors; ++v) {
      float* const place = to.values + (first + r) * to.stride + column + v * kVector;
      const Vector sum = to.factor * sums[r][v];
      store(to.adds ? load(place) + sum : sum, place);
    }
  }
}

/// left * right, or added to the target.
/// @param right    packed
/// @param columns  of the right factor; a multiple of kPanel
LOCKSTEP_VECTOR_KERNEL void multiply(const Left& left, const float* right, std::int64_t columns, std::int64_t depth,
                                     const Target& to) {
  for (std::int64_t column = 0; column < columns; column += kPanel) {
    const float* const panel = right + column * depth;
    std::int64_t r = 0;
    for (; r + kTileRows <= left.rows; r += kTileRows) write_tile<kTileRows>(left, r, panel, depth, to, column);
    switch (left.rows - r) {
      case 5:
        write_tile<5>(left, r, panel, depth, to, column);
        break;
      case 4:
        write_tile<4>(left, r, panel, depth, to, column);
        break;
      case 3:
        write_tile<3>(left, r, panel, depth, to, column);
        break;
      case 2:
        write_tile<2>(left, r, panel, depth, to, column);
        break;
      case 1:
        write_tile<1>(left, r, panel, depth, to, column);
        break;
      default:
        break;
    }
  }
}

LOCKSTEP_VECTOR_INLINE float sum_of(Vector value) {
  float sum = 0;
  for (std::int64_t i = 0; i < kVector; ++i) sum += value[i];
  return sum;
}

/// e^(scale x - shift) in place of the products x of a query with the keys; 0 behind the last key.
LOCKSTEP_VECTOR_KERNEL void write_weights(float* row, std::int64_t keys, float scale, float shift) {
  const std::int64_t all = padded(keys);
#pragma GCC ivdep
  for (std::int64_t k = 0; k < all; ++k) {
    const float x = scale * row[k] - shift;
    row[k] = exponential(x < -87.0F ? -87.0F : x);
  }
  for (std::int64_t k = keys; k < all; ++k) row[k] = 0;
}

/// The softmax of a row without the division.
/// @return  the divisor; `log_sum` is its logarithm plus what was subtracted
LOCKSTEP_VECTOR_KERNEL float write_softmax(float* row, std::int64_t keys, float scale, float& log_sum) {
  const std::int64_t all = padded(keys);
  for (std::int64_t k = keys; k < all; ++k) row[k] = -std::numeric_limits<float>::infinity();
  Vector largest = load(row);
  for (std::int64_t k = kVector; k < all; k += kVector) {
    const Vector next = load(row + k);
    largest = next > largest ? next : largest;
  }
  float maximum = largest[0];
  for (std::int64_t i = 1; i < kVector; ++i) maximum = std::max(maximum, static_cast<float>(largest[i]));
  write_weights(row, keys, scale, scale * maximum);
  Vector sums = {};
  for (std::int64_t k = 0; k < all; k += kVector) sums += load(row + k);
  const float sum = sum_of(sums);
  log_sum = scale * maximum + std::log(sum);
  return sum;
}

/// weights * (gradients - mean) in place of the gradients of the weights of a query.
LOCKSTEP_VECTOR_KERNEL void write_product_gradients(const float* weights, float mean, std::int64_t all,
                                                    float* gradients) {
  for (std::int64_t k = 0; k < all; k += kVector)
    store(load(weights + k) * (load(gradients + k) - mean), gradients + k);
}

LOCKSTEP_VECTOR_KERNEL float dot(const float* a, const float* b, std::int64_t count) {
  Vector sums = {};
  for (std::int64_t i = 0; i < count; i += kVector) sums += load(a + i) * load(b + i);
  return sum_of(sums);
}

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

enum class Part { query, key, value };

/// One head of one sample.
struct Head {
  const SelfAttention& of;
  std::int64_t sample;
  std::int64_t head;

  std::int64_t stride() const { return 3 * of.heads * of.features; }
  template <class T>
  Rows<T> part(T* qkv, Part part, std::int64_t count) const {
    const auto number = static_cast<std::int64_t>(part);
    return {qkv + sample * of.tokens * stride() + (number * of.heads + head) * of.features, stride(), count};
  }
  Rows<const float> queries() const { return part(of.qkv, Part::query, of.queries); }
  Rows<const float> keys() const { return part(of.qkv, Part::key, of.tokens); }
  Rows<const float> values() const { return part(of.qkv, Part::value, of.tokens); }
  /// Of a tensor like the output.
  template <class T>
  Rows<T> output(T* values) const {
    return {values + (sample * of.queries * of.heads + head) * of.features, of.heads * of.features, of.queries};
  }
  template <class T>
  T* log_sums(T* values) const {
    return values + (sample * of.heads + head) * of.queries;
  }
};

template <class T>
Rows<T> slice(const Rows<T>& rows, std::int64_t begin, std::int64_t end) {
  return {rows.row(begin), rows.stride, end - begin};
}

float scale_of(const SelfAttention& of) { return 1.0F / std::sqrt(static_cast<float>(of.features)); }

/// Queries that are worked on together: blocks of about the same size.
std::int64_t block_of(std::int64_t queries, std::int64_t largest) {
  const std::int64_t blocks = std::max<std::int64_t>(1, (queries + largest - 1) / largest);
  const std::int64_t rows = (queries + blocks - 1) / blocks;
  return (rows + kTileRows - 1) / kTileRows * kTileRows;
}

class Forward {
 public:
  explicit Forward(const SelfAttention& of)
      : of_(of),
        keys_(scratch_.take(padded(of.tokens) * of.features)),
        values_(scratch_.take(of.tokens * of.features)),
        weights_(scratch_.take(kRows * padded(of.tokens))) {}

  void write(const Head& head, float* output, float* log_sums) {
    const std::int64_t all = padded(of_.tokens);
    pack_transposed(head.keys(), of_.features, keys_);
    pack(head.values(), of_.features, values_);
    const Rows<float> to = head.output(output);
    for (std::int64_t begin = 0; begin < of_.queries; begin += kRows) {
      const std::int64_t end = std::min(of_.queries, begin + kRows);
      multiply(as_left(slice(head.queries(), begin, end)), keys_, all, of_.features, {weights_, all});
      for (std::int64_t i = begin; i < end; ++i) {
        float* const row = weights_ + (i - begin) * all;
        divide(row, all, write_softmax(row, of_.tokens, scale_of(of_), head.log_sums(log_sums)[i]));
      }
      multiply({weights_, all, 1, end - begin}, values_, of_.features, of_.tokens, {to.row(begin), to.stride});
    }
  }

 private:
  static constexpr std::int64_t kRows = 4 * kTileRows;  // whose weights stay in the first-level cache

  LOCKSTEP_VECTOR_KERNEL static void divide(float* row, std::int64_t count, float divisor) {
    const float factor = 1.0F / divisor;
    for (std::int64_t k = 0; k < count; k += kVector) store(factor * load(row + k), row + k);
  }

  const SelfAttention& of_;
  Scratch scratch_;
  float* keys_;
  float* values_;
  float* weights_;
};

class Backward {
 public:
  explicit Backward(const SelfAttention& of)
      : of_(of),
        rows_(block_of(of.queries, kBlockQueries)),
        keys_(scratch_.take(of.tokens * of.features)),
        keys_transposed_(scratch_.take(padded(of.tokens) * of.features)),
        values_transposed_(scratch_.take(padded(of.tokens) * of.features)),
        queries_(scratch_.take(rows_ * of.features)),
        gradients_(scratch_.take(rows_ * of.features)),
        weights_(scratch_.take(rows_ * padded(of.tokens))),
        weight_gradients_(scratch_.take(rows_ * padded(of.tokens))) {}

  void write(const Head& head, const float* output, const float* log_sums, const float* gradient, float* qkv_gradient) {
    const std::int64_t all = padded(of_.tokens);
    const float scale = scale_of(of_);
    pack(head.keys(), of_.features, keys_);
    pack_transposed(head.keys(), of_.features, keys_transposed_);
    pack_transposed(head.values(), of_.features, values_transposed_);
    const Rows<float> to_queries = head.part(qkv_gradient, Part::query, of_.tokens);
    const Rows<float> to_keys = head.part(qkv_gradient, Part::key, of_.tokens);
    const Rows<float> to_values = head.part(qkv_gradient, Part::value, of_.tokens);
    for (std::int64_t begin = 0; begin < of_.queries; begin += rows_) {
      const std::int64_t end = std::min(of_.queries, begin + rows_);
      const std::int64_t rows = end - begin;
      const Rows<const float> queries = slice(head.queries(), begin, end);
      const Rows<const float> gradients = slice(head.output(gradient), begin, end);
      const Rows<const float> outputs = slice(head.output(output), begin, end);
      pack(queries, of_.features, queries_);
      pack(gradients, of_.features, gradients_);
      multiply(as_left(queries), keys_transposed_, all, of_.features, {weights_, all});
      multiply(as_left(gradients), values_transposed_, all, of_.features, {weight_gradients_, all});
      for (std::int64_t i = 0; i < rows; ++i) {
        write_weights(weights_ + i * all, of_.tokens, scale, head.log_sums(log_sums)[begin + i]);
        const float mean = dot(gradients.row(i), outputs.row(i), of_.features);
        write_product_gradients(weights_ + i * all, mean, all, weight_gradients_ + i * all);
      }
      multiply({weight_gradients_, all, 1, rows}, keys_, of_.features, of_.tokens,
               {to_queries.row(begin), to_queries.stride, scale});
      const bool adds = begin > 0;
      multiply({weight_gradients_, 1, all, of_.tokens}, queries_, of_.features, rows,
               {to_keys.values, to_keys.stride, scale, adds});
      multiply({weights_, 1, all, of_.tokens}, gradients_, of_.features, rows,
               {to_values.values, to_values.stride, 1, adds});
    }
    for (std::int64_t i = of_.queries; i < of_.tokens; ++i) {
      std::fill(to_queries.row(i), to_queries.row(i) + of_.features, 0.0F);
    }
  }

 private:
  const SelfAttention& of_;
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

void write_self_attention(const SelfAttention& of, const HeadRange& range, float* output, float* log_sums) {
  Forward work(of);
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    work.write({of, i / of.heads, i % of.heads}, output, log_sums);
  }
}

void write_self_attention_gradient(const SelfAttention& of, const HeadRange& range, const float* output,
                                   const float* log_sums, const float* gradient, float* qkv_gradient) {
  Backward work(of);
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    work.write({of, i / of.heads, i % of.heads}, output, log_sums, gradient, qkv_gradient);
  }
}

}  // namespace lockstep::kernels
