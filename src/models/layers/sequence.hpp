// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/models/functional.hpp>
#include <lockstep/models/layers.hpp>

#include <memory>
#include <string>
#include <vector>

#include "models/layers/constant_weights.hpp"

namespace lockstep::models {

/// Blocks that run one after another, each under its own name.
class BlockSequence : public Block {
 public:
  /// Appends a block.
  /// @param name  part of the path, such as "0"
  void add(const std::string& name, const std::shared_ptr<Block>& block) {
    blocks_.push_back(register_module(name, block));
  }

  at::Tensor forward(const at::Tensor& input) override {
    at::Tensor x = input;
    for (const auto& block : blocks_) x = run(*block, x);
    return x;
  }

 private:
  std::vector<std::shared_ptr<Block>> blocks_;
};

/// gelu(layer(input)), where LibTorch would read and write the values between once more: in evaluations in one pass
/// with the product, unless there is a tap, and in training in one pass that also computes the derivative.
/// @param input  [..., in]
/// @return       [..., out]
at::Tensor linear_gelu(Linear& layer, const at::Tensor& input);

/// A block that ends with a linear layer, whose output is added to other values.
class LinearBranch : public Block {
 public:
  at::Tensor forward(const at::Tensor& input) override { return run(*last_, before_last(input)); }

  /// residual + scale * forward(input), without taps. In one pass over memory while weights are constant.
  /// @param scale  a factor for each feature of the output, or undefined
  at::Tensor forward_sum(const at::Tensor& input, const at::Tensor& residual, const at::Tensor& scale) {
    const at::Tensor values = before_last(input);
    const at::Tensor sum = linear_sum_of_constants(*last_, values, residual, scale);
    if (sum.defined()) return sum;
    const at::Tensor output = run(*last_, values);
    return residual + (scale.defined() ? output * scale : output);
  }

 protected:
  virtual at::Tensor before_last(const at::Tensor& input) = 0;

  std::shared_ptr<Linear> last_;
};

/// Two linear layers with GELU between them.
class GeluMlp : public LinearBranch {
 public:
  GeluMlp(std::int64_t features, std::int64_t hidden) {
    first_ = register_module("fc1", std::make_shared<Linear>(features, hidden));
    last_ = register_module("fc2", std::make_shared<Linear>(hidden, features));
  }

 private:
  at::Tensor before_last(const at::Tensor& input) override { return linear_gelu(*first_, input); }

  std::shared_ptr<Linear> first_;
};

/// A LayerNorm over the channels of each pixel. Its inputs are fastest in channels-last layout.
class ChannelNorm : public LayerNorm {
 public:
  explicit ChannelNorm(std::int64_t channels, double eps) : LayerNorm(channels, /*has_bias=*/true, eps) {}

  /// [N, C, H, W] -> the same
  at::Tensor forward(const at::Tensor& input) override {
    return LayerNorm::forward(input.permute({0, 2, 3, 1})).permute({0, 3, 1, 2});
  }
};

}  // namespace lockstep::models
