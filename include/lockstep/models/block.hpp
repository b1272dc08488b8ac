// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <functional>
#include <string>
#include <vector>

namespace lockstep::models {

/// The kind of a layer, for options that depend on it.
enum class LayerKind {
  other,
  norm,       ///< batch, instance, group or layer norm
  depthwise,  ///< two-dimensional convolution with as many groups as input channels
  deformable  ///< deformable convolution; the layers inside compute its offsets
};

/// The inputs or outputs of a block. An absent tensor, such as an optional mask, is undefined.
using Tensors = std::vector<at::Tensor>;

/// A part of a model: a layer, a transformer block, or a whole model. It overrides one of the two forwards.
class Block : public torch::nn::Module {
 public:
  /// Computes one tensor from one tensor. The default throws ConfigError.
  virtual at::Tensor forward(const at::Tensor& input);
  /// Computes several tensors from several. The default calls `forward` with the only tensor.
  /// @throws ConfigError  by default, if there is not exactly one tensor
  virtual Tensors forward_tensors(const Tensors& inputs);

  virtual LayerKind kind() const { return LayerKind::other; }

  /// Dotted path inside the model ("blocks.2.attention"), empty for the model itself and before name_blocks.
  const std::string& path() const noexcept { return path_; }

  /// Sets the path of every block below this one. build() calls it when the model is complete.
  void name_blocks();

 private:
  std::string path_;
};

/// Runs a block. Models call all blocks through this function, so that taps observe them. Without a tap, it has no
/// overhead.
/// @throws ConfigError  LibTorch rejected the computation (shapes, types); the message states the path of the innermost
///                      block
at::Tensor run(Block& block, const at::Tensor& input);
Tensors run(Block& block, const Tensors& inputs);

/// The blocks of a model with paths that match a pattern, in the order of registration. `*` matches any text without a
/// dot.
/// @param patterns  such as "block*" or "layer*.1"
/// @param key       the configuration key of the patterns, for messages
/// @throws ConfigError  a pattern matches no block
std::vector<const Block*> matching_blocks(const Block& model, const std::vector<std::string>& patterns,
                                          const std::string& key);

/// The computation inside a tap: the next tap, or the block.
using Forward = std::function<Tensors(const Tensors& inputs)>;

/// A function around the forward of every block. It calls `next(inputs)` once, or several times to recompute. A block
/// of one tensor has one input and one output.
using Tap = std::function<Tensors(Block& block, const Tensors& inputs, const Forward& next)>;

/// Whether a tap is installed on this thread.
bool is_tapped();

/// Installs a tap on this thread during its lifetime. The previous tap runs inside it.
class ScopedTap {
 public:
  explicit ScopedTap(Tap tap);
  ~ScopedTap();
  ScopedTap(const ScopedTap&) = delete;
  ScopedTap& operator=(const ScopedTap&) = delete;

  const Tap& tap() const noexcept { return tap_; }
  const ScopedTap* outer() const noexcept { return outer_; }

 private:
  Tap tap_;
  const ScopedTap* outer_;
};

}  // namespace lockstep::models
