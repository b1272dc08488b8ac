// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

// softmax(q k^T / sqrt(features)) v of the three parts of one projection, and its gradient.
namespace lockstep::kernels {

/// The attention of the tokens of a sample to each other. All tensors are contiguous float32.
struct SelfAttention {
  const float* qkv;  ///< [samples, tokens, 3, heads, features]: queries, keys and values
  std::int64_t samples;
  std::int64_t tokens;   ///< number of tokens, <= kMaxAttentionTokens
  std::int64_t queries;  ///< tokens with an output: the first ones
  std::int64_t heads;
  std::int64_t features;  ///< features of a head; a multiple of kAttentionFeatures
};

inline constexpr std::int64_t kMaxAttentionTokens = 1024;
inline constexpr std::int64_t kAttentionFeatures = 16;

/// Heads of all samples, [begin, end) of [0, samples * heads): the work of a thread.
struct HeadRange {
  std::int64_t begin;
  std::int64_t end;
};

/// @param output    [samples, queries, heads, features]
/// @param log_sums  [samples, heads, queries]: for the gradient
void write_self_attention(const SelfAttention& attention, const HeadRange& range, float* output, float* log_sums);

/// @param output         of write_self_attention; log_sums likewise
/// @param gradient       [samples, queries, heads, features]: with respect to the output
/// @param qkv_gradient   [samples, tokens, 3, heads, features]; all of it is written
void write_self_attention_gradient(const SelfAttention& attention, const HeadRange& range, const float* output,
                                   const float* log_sums, const float* gradient, float* qkv_gradient);

}  // namespace lockstep::kernels
