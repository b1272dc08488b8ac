// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/models/block.hpp>

#include <cstdint>

// N samples, C channels, H x W pixels, T tokens, E features.
namespace lockstep::models {

/// y = x W^T + b. Initialised like PyTorch's: uniform in +-1/sqrt(in).
class Linear : public Block {
 public:
  Linear(std::int64_t in, std::int64_t out, bool has_bias = true);
  at::Tensor forward(const at::Tensor& input) override;  ///< [..., in] -> [..., out]

  at::Tensor weight;  ///< [out, in]
  at::Tensor bias;    ///< [out], or undefined
};

/// Square two-dimensional convolution with stride 1 and padding that keeps H x W. Initialised like PyTorch's.
class Conv2d : public Block {
 public:
  /// @param kernel  side of the window; odd
  Conv2d(std::int64_t in, std::int64_t out, std::int64_t kernel, bool has_bias = true);
  at::Tensor forward(const at::Tensor& input) override;  ///< [N, in, H, W] -> [N, out, H, W]

  at::Tensor weight;  ///< [out, in, kernel, kernel]
  at::Tensor bias;    ///< [out], or undefined

 private:
  std::int64_t padding_;
};

/// A learned vector for each of `count` tokens, from N(0, 1).
class Embedding : public Block {
 public:
  Embedding(std::int64_t count, std::int64_t features);
  at::Tensor forward(const at::Tensor& tokens) override;  ///< [N, T] int64 -> [N, T, features]

  at::Tensor weight;  ///< [count, features]
};

/// Normalises the last dimension to mean 0 and variance 1 (eps 1e-5), then scales and, with a bias, shifts.
class LayerNorm : public Block {
 public:
  explicit LayerNorm(std::int64_t features, bool has_bias = true);
  at::Tensor forward(const at::Tensor& input) override;  ///< [..., features] -> the same

  at::Tensor weight;  ///< [features], ones
  at::Tensor bias;    ///< [features], zeros, or undefined
};

/// Zeroes each element with the given probability while training, and scales the others up.
class Dropout : public Block {
 public:
  explicit Dropout(double probability) : probability_(probability) {}
  at::Tensor forward(const at::Tensor& input) override;

 private:
  double probability_;
};

}  // namespace lockstep::models
