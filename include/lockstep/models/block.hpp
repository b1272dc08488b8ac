// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <functional>
#include <string>
#include <vector>

namespace lockstep::models {

/// What a layer is, for those who treat its parameters differently.
enum class LayerKind {
  other,
  norm,       ///< batch, instance, group or layer norm
  depthwise,  ///< two-dimensional convolution with as many groups as input channels
  deformable  ///< deformable convolution: the layers inside it tell it where to look
};

/// What a block receives and returns. A tensor that is absent (a mask, say) is undefined.
using Tensors = std::vector<at::Tensor>;

/// A part of a model: a layer, a transformer block, a whole model. It overrides one of the two forwards.
class Block : public torch::nn::Module {
 public:
  /// From one tensor to one. @throws ConfigError  this block has no forward of one tensor (the default)
  virtual at::Tensor forward(const at::Tensor& input);
  /// From several tensors to several. The default is `forward` of the only one.
  /// @throws ConfigError  the default, of another number of tensors
  virtual Tensors forward_tensors(const Tensors& inputs);

  virtual LayerKind kind() const { return LayerKind::other; }

  /// Dotted path inside the model ("blocks.2.attention"), empty for the model itself and before name_blocks.
  const std::string& path() const noexcept { return path_; }

  /// Gives every block below this one its path. build() calls it once the model is complete.
  void name_blocks();

 private:
  std::string path_;
};

/// Runs a block. Every model calls its blocks through this, so that taps see them all; without a tap it costs nothing.
/// @throws ConfigError  LibTorch refused the computation (shapes, types); the text names the innermost block's path
at::Tensor run(Block& block, const at::Tensor& input);
Tensors run(Block& block, const Tensors& inputs);

/// The blocks inside a model whose paths match a pattern, in the order of registration. As in file names, `*` stands
/// for any text without a dot.
/// @param patterns  such as "block*" or "layer*.1"
/// @param key       what gave the patterns, for messages
/// @throws ConfigError  a pattern that matches no block
std::vector<const Block*> matching_blocks(const Block& model, const std::vector<std::string>& patterns,
                                          const std::string& key);

/// What a tap runs inside it: the next tap, or the block.
using Forward = std::function<Tensors(const Tensors& inputs)>;

/// Runs around the forward of every block: it calls `next(inputs)` once, or more often to recompute. A block of one
/// tensor has one input and one output.
using Tap = std::function<Tensors(Block& block, const Tensors& inputs, const Forward& next)>;

/// Whether this thread has one.
bool is_tapped();

/// Installs a tap on this thread for its own lifetime; the one that was there runs inside it.
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
