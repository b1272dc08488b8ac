// SPDX-License-Identifier: BSD-3-Clause
#include "models/layers/attention.hpp"

#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/types.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include "models/layers/recorded.hpp"

namespace lockstep::models {

namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

constexpr std::int64_t kFlash = 1;  // at::SDPBackend::flash_attention

/// LibTorch's kernel for CPUs, whose own derivative cannot be differentiated.
class FlashAttentionBackward : public torch::autograd::Node {
 public:
  FlashAttentionBackward(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, bool is_causal)
      : Node(torch::autograd::collect_next_edges(query, key, value)),
        factors_{SavedVariable(query, false), SavedVariable(key, false), SavedVariable(value, false)},
        is_causal_(is_causal) {}

  /// The results of the forward.
  void save(const at::Tensor& output, const at::Tensor& log_sums) {
    output_ = output;
    log_sums_ = log_sums;
  }

  std::string name() const override { return "FlashAttentionBackward"; }

  variable_list apply(variable_list&& gradients) override {
    const std::lock_guard<std::mutex> hold(mutex_);
    if (!gradients[0].defined()) return variable_list(3);
    const at::Tensor query = factors_[0].unpack();
    const at::Tensor key = factors_[1].unpack();
    const at::Tensor value = factors_[2].unpack();
    if (at::GradMode::is_enabled()) {
      const AttentionGradients result = attention_gradients(query, key, value, is_causal_, gradients[0]);
      return {result.query, result.key, result.value};
    }
    const auto [of_query, of_key, of_value] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        gradients[0], query, key, value, output_, log_sums_, /*dropout_p=*/0, is_causal_);
    return {of_query, of_key, of_value};
  }

  void release_variables() override {
    const std::lock_guard<std::mutex> hold(mutex_);
    for (SavedVariable& factor : factors_) factor.reset_data();
    output_.reset();
    log_sums_.reset();
  }

 private:
  std::array<SavedVariable, 3> factors_;
  bool is_causal_;
  at::Tensor output_;  // detached from the autograd graph
  at::Tensor log_sums_;
};

bool is_flash_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, double dropout,
                        bool is_causal) {
  return query.is_cpu() && !at::autocast::is_autocast_enabled(at::kCPU) && dropout == 0 &&
         torch::autograd::compute_requires_grad(query, key, value) &&
         at::_fused_sdp_choice(query, key, value, {}, dropout, is_causal) == kFlash;
}

}  // namespace

AttentionGradients attention_gradients(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                       bool is_causal, const at::Tensor& gradient) {
  const double root = std::sqrt(static_cast<double>(query.size(-1)));
  const at::Tensor scaled = query / root;
  at::Tensor products = scaled.matmul(key.transpose(-2, -1));
  if (is_causal) {
    const at::Tensor is_later = at::ones({query.size(-2), key.size(-2)}, query.options().dtype(at::kBool)).triu(1);
    products = products.masked_fill(is_later, -std::numeric_limits<double>::infinity());
  }
  const at::Tensor weights = at::softmax(products, -1);
  const at::Tensor of_weights = gradient.matmul(value.transpose(-2, -1));
  const at::Tensor of_products = weights * (of_weights - (weights * of_weights).sum(-1, /*keepdim=*/true));
  return {.query = of_products.matmul(key) / root,
          .key = of_products.transpose(-2, -1).matmul(scaled),
          .value = weights.transpose(-2, -1).matmul(gradient)};
}

at::Tensor differentiable_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                    double dropout, bool is_causal) {
  if (!is_flash_attention(query, key, value, dropout, is_causal)) {
    return at::scaled_dot_product_attention(query, key, value, {}, dropout, is_causal);
  }
  const auto node = backward_node<FlashAttentionBackward>(query, key, value, is_causal);
  at::Tensor log_sums;
  at::Tensor output = output_of(node, [&] {
    auto results = at::_scaled_dot_product_flash_attention_for_cpu(query, key, value, /*dropout_p=*/0, is_causal);
    log_sums = std::get<1>(results);
    return std::get<0>(results);
  });
  node->save(output.detach(), log_sums);
  return output;
}

}  // namespace lockstep::models
