// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::models {

struct AttentionGradients {
  at::Tensor query;
  at::Tensor key;
  at::Tensor value;
};

/// The gradients of softmax(query key^T / sqrt(E)) value, as products of matrices, which autograd records.
/// @param query, key, value  [N, heads, T, E]; the query may have fewer tokens than the others
/// @param is_causal          token t attends to tokens up to t
/// @param gradient           gradient of the result, [N, heads, queries, E]
AttentionGradients attention_gradients(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                       bool is_causal, const at::Tensor& gradient);

/// LibTorch's attention, with the same bits, but differentiable more than once on CPUs, too.
at::Tensor differentiable_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                    double dropout, bool is_causal);

}  // namespace lockstep::models
