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

constexpr std::int64_t kVectors = 2;  // vectors in a row of a tile; the sums of a tile then fill 12 of 16 registers
constexpr std::int64_t kTileRows = 6;
constexpr std::int64_t kPanel = kVectors * kVector;
constexpr std::int64_t kBlockQueries = 264;  // block queries: whose weights stay in the second-level cache

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
LOCKSTEP_VECTOR_KERNEL void pack(const Rows<const float>& rows, std::int64_t features, float* target) {
  for (std::int64_t e = 0; e < features; e += kPanel) {
    for (std::int64_t i = 0; i < rows.count; ++i, target += kPanel) {
      std::memcpy(target, rows.row(i) + e, kPanel * sizeof(float));
    }
  }
}

/// The transposed rows as a right factor: [rows / kPanel][features][kPanel], with zeros behind the last row.
LOCKSTEP_VECTOR_KERNEL void pack_transposed(const Rows<const float>& rows, std::int64_t features, float* target) {
  for (std::int64_t first = 0; first < rows.count; first += kVector) {
    float* const panel = target + first / kPanel * kPanel * features + first % kPanel;
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
  float* const rest = target + rows.count / kPanel * kPanel * features + kVector;
  for (std::int64_t e = 0; e < features; ++e) store(Vector{}, rest + e * kPanel);
}

/// The place to which a product is written.
struct Target {
  float* values;
  std::int64_t stride;
  float factor = 1;
  bool adds = false;
};

template <std::int64_t kRows>
LOCKSTEP_VECTOR_INLINE void write_tile(const Left& left, std::int64_t first, const float* panel, std::int64_t depth,
                                       const Target& target, std::int64_t column) {
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
      float* const place = target.values + (first + r) * target.stride + column + v * kVector;
      const Vector sum = target.factor * sums[r][v];
      store(target.adds ? load(place) + sum : sum, place);
    }
  }
}

/// left * right, or added to the target.
/// @param right    packed
/// @param columns  of the right factor; a multiple of kPanel
LOCKSTEP_VECTOR_KERNEL void multiply(const Left& left, const float* right, std::int64_t columns, std::int64_t depth,
                                     const Target& target) {
  for (std::int64_t column = 0; column < columns; column += kPanel) {
    const float* const panel = right + column * depth;
    std::int64_t r = 0;
    for (; r + kTileRows <= left.rows; r += kTileRows) write_tile<kTileRows>(left, r, panel, depth, target, column);
    switch (left.rows - r) {
      case 5:
        write_tile<5>(left, r, panel, depth, target, column);
        break;
      case 4:
        write_tile<4>(left, r, panel, depth, target, column);
        break;
      case 3:
        write_tile<3>(left, r, panel, depth, target, column);
        break;
      case 2:
        write_tile<2>(left, r, panel, depth, target, column);
        break;
      case 1:
        write_tile<1>(left, r, panel, depth, target, column);
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
  return (rows + kTileRows - 1) / kTileRows * kTileRows;
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
      for (std::int64_t i = begin; i < end; ++i) {
        float* const row = weights_ + (i - begin) * all;
        divide(row, all, write_softmax(row, attention_.tokens, scale_of(attention_), head.log_sums(log_sums)[i]));
      }
      multiply({weights_, all, 1, end - begin}, values_, attention_.features, attention_.tokens,
               {target.row(begin), target.stride});
    }
  }

 private:
  static constexpr std::int64_t kRows = 4 * kTileRows;  // rows: whose weights stay in the first-level cache

  LOCKSTEP_VECTOR_KERNEL static void divide(float* row, std::int64_t count, float divisor) {
    const float factor = 1.0F / divisor;
    for (std::int64_t k = 0; k < count; k += kVector) store(factor * load(row + k), row + k);
  }

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
      for (std::int64_t i = 0; i < rows; ++i) {
        write_weights(weights_ + i * all, attention_.tokens, scale, head.log_sums(log_sums)[begin + i]);
        const float mean = dot(gradients.row(i), outputs.row(i), attention_.features);
        write_product_gradients(weights_ + i * all, mean, all, weight_gradients_ + i * all);
      }
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
