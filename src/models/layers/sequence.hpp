// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/models/functional.hpp>
#include <lockstep/models/layers.hpp>

#include <memory>
#include <string>
#include <vector>

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

/// Two linear layers with GELU between them.
class GeluMlp : public Block {
 public:
  GeluMlp(std::int64_t features, std::int64_t hidden) {
    in_ = register_module("fc1", std::make_shared<Linear>(features, hidden));
    out_ = register_module("fc2", std::make_shared<Linear>(hidden, features));
  }

  at::Tensor forward(const at::Tensor& input) override { return run(*out_, models::gelu(run(*in_, input))); }

 private:
  std::shared_ptr<Linear> in_;
  std::shared_ptr<Linear> out_;
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
