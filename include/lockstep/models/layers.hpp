// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/models/block.hpp>
#include <lockstep/models/functional.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

// N samples, C channels, H x W pixels (H' x W' after a stride), T tokens, E features.
namespace lockstep::models {

/// y = x W^T + b. Initialized as in PyTorch: uniform in +-1/sqrt(in).
class Linear : public Block {
 public:
  Linear(std::int64_t in, std::int64_t out, bool has_bias = true);
  at::Tensor forward(const at::Tensor& input) override;  ///< [..., in] -> [..., out]

  at::Tensor weight;  ///< [out, in]
  at::Tensor bias;    ///< [out], or undefined
};

struct Conv2dOptions {
  std::int64_t stride = 1;  ///< >= 1
  bool has_bias = true;
  std::int64_t groups = 1;  ///< the channels are divided into groups, which do not see each other
  /// Zeros at each border; by default kernel / 2, which keeps H x W of odd kernels (before the stride).
  std::optional<std::int64_t> padding = std::nullopt;
};

/// Two-dimensional convolution with a square kernel. Initialized as in PyTorch.
class Conv2d : public Block {
 public:
  /// @param kernel  side of the kernel
  Conv2d(std::int64_t in, std::int64_t out, std::int64_t kernel, const Conv2dOptions& options = {});
  at::Tensor forward(const at::Tensor& input) override;  ///< [N, in, H, W] -> [N, out, H', W']
  LayerKind kind() const override { return weight.size(1) == 1 ? LayerKind::depthwise : LayerKind::other; }
  const Convolution& geometry() const noexcept { return geometry_; }

  at::Tensor weight;  ///< [out, in / groups, kernel, kernel]
  at::Tensor bias;    ///< [out], or undefined

 private:
  Convolution geometry_;
};

/// Transposed convolution without padding and with a square kernel: kernel = stride makes H x W larger by this factor.
/// Initialized as in PyTorch.
class ConvTranspose2d : public Block {
 public:
  ConvTranspose2d(std::int64_t in, std::int64_t out, std::int64_t kernel, const Conv2dOptions& options = {});
  /// [N, in, H, W] -> [N, out, (H - 1) * stride + kernel, (W - 1) * stride + kernel]
  at::Tensor forward(const at::Tensor& input) override;

  at::Tensor weight;  ///< [in, out / groups, kernel, kernel]
  at::Tensor bias;    ///< [out], or undefined

 private:
  std::int64_t stride_;
  std::int64_t groups_;
};

struct BatchNormOptions {
  double eps = 1e-5;                     ///< added to the variance; > 0
  std::optional<double> momentum = 0.1;  ///< weight of a new batch in the running statistics; none = equal weights
  bool is_affine = true;                 ///< has a learned scale and shift
};

/// Normalizes each channel to mean 0 and variance 1, then scales and shifts: in training mode with the statistics of
/// the batch, which also update the running statistics; in evaluation mode with the running statistics. Equal to
/// PyTorch, including the buffers. Source: Ioffe and Szegedy, "Batch normalization", 2015, algorithms 1 and 2.
class BatchNorm : public Block {
 public:
  /// Normalizes a training batch and updates running_mean and running_var of the layer.
  /// @param momentum  weight of this batch in them; 0 during recomputation
  using Training = std::function<at::Tensor(BatchNorm& layer, const at::Tensor& input, double momentum)>;

  explicit BatchNorm(std::int64_t channels, const BatchNormOptions& options = {});
  at::Tensor forward(const at::Tensor& input) override;  ///< [N, C, ...] -> the same
  LayerKind kind() const override { return LayerKind::norm; }
  /// relu(forward(input) + residual), with fewer memory accesses if possible.
  /// @param residual  tensor with the shape of the input, or undefined
  at::Tensor forward_relu(const at::Tensor& input, const at::Tensor& residual = {});

  double eps() const noexcept { return eps_; }

  /// Replaces the normalization of training batches, for example by statistics over all ranks. An empty function
  /// restores the default.
  void train_by(Training training) { training_ = std::move(training); }
  const Training& trained_by() const noexcept { return training_; }  ///< empty = the default

  at::Tensor weight;               ///< [C], ones, or undefined
  at::Tensor bias;                 ///< [C], zeros, or undefined
  at::Tensor running_mean;         ///< [C], starts with zeros
  at::Tensor running_var;          ///< [C], starts with ones; computed from unbiased variances
  at::Tensor num_batches_tracked;  ///< [] int64

 private:
  at::Tensor normalize(const at::Tensor& input, const at::Tensor& residual, bool has_relu);
  at::Tensor normalize_batch(const at::Tensor& input, double momentum);
  double count_batch();

  double eps_;
  std::optional<double> momentum_;
  Training training_;
};

/// A learned vector per token, initialized from N(0, 1).
class Embedding : public Block {
 public:
  Embedding(std::int64_t count, std::int64_t features);
  at::Tensor forward(const at::Tensor& tokens) override;  ///< [N, T] int64 -> [N, T, features]

  at::Tensor weight;  ///< [count, features]
};

/// Normalizes the last dimension to mean 0 and variance 1, then scales and (with a bias) shifts it.
class LayerNorm : public Block {
 public:
  /// @param eps  added to the variance; > 0
  explicit LayerNorm(std::int64_t features, bool has_bias = true, double eps = 1e-5);
  at::Tensor forward(const at::Tensor& input) override;  ///< [..., features] -> the same
  LayerKind kind() const override { return LayerKind::norm; }

  at::Tensor weight;  ///< [features], ones
  at::Tensor bias;    ///< [features], zeros, or undefined

  double eps() const noexcept { return eps_; }

 private:
  double eps_;
};

/// Normalizes each sample and group of channels to mean 0 and variance 1, then scales and shifts each channel.
/// Source: Wu and He, "Group normalization", 2018.
class GroupNorm : public Block {
 public:
  /// @param groups  divides `channels`
  GroupNorm(std::int64_t groups, std::int64_t channels, double eps = 1e-5);
  at::Tensor forward(const at::Tensor& input) override;  ///< [N, C, ...] -> the same
  LayerKind kind() const override { return LayerKind::norm; }

  at::Tensor weight;  ///< [C], ones
  at::Tensor bias;    ///< [C], zeros

 private:
  std::int64_t groups_;
  double eps_;
};

/// Sets each element to zero with the given probability and scales the others by 1 / (1 - probability) in training
/// mode.
class Dropout : public Block {
 public:
  explicit Dropout(double probability) : probability_(probability) {}
  at::Tensor forward(const at::Tensor& input) override;

 private:
  double probability_;
};

/// Sets whole samples of a residual branch to zero with the given probability and scales the others by 1 / (1 -
/// probability) in training mode. Source: Huang et al., "Deep networks with stochastic depth", 2016.
class DropPath : public Block {
 public:
  explicit DropPath(double probability) : probability_(probability) {}
  at::Tensor forward(const at::Tensor& input) override;  ///< [N, ...] -> the same

 private:
  double probability_;
};

}  // namespace lockstep::models
