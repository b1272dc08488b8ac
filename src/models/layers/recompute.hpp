// SPDX-License-Identifier: BSD-3-Clause
// Activation checkpointing: a block keeps only its inputs, and backward runs its forward again.
// Source: Chen et al., "Training deep nets with sublinear memory cost", 2016.
#pragma once

#include <lockstep/models/block.hpp>

#include <string>
#include <vector>

namespace lockstep::models {

enum class RecomputeMode {
  /// The block's parameters are inputs of the recomputed function: each gets its gradient once, from the backward
  /// pass that the user started. Works with autograd::grad, too.
  plain,
  /// Backward starts another backward inside of itself, in which the parameters get their gradients: once for each
  /// time that the block was run. The block may use tensors that are not its own parameters.
  reentrant,
};

/// Runs a block so that nothing of what happens inside is kept for backward. Without gradients it just runs it.
///
/// The second run draws the same random numbers as the first, casts alike (autocast), leaves running statistics alone,
/// and goes through the same taps, which must be able to run until backward has ended. The block must compute the same
/// again: neither its training mode nor its parameters may change before backward.
/// @throws ConfigError  from backward: second derivatives were requested; plain, but the block uses a trained tensor
///                      that is not its own parameter; reentrant, but certain gradients only were requested
at::Tensor recompute(Block& block, const at::Tensor& input, RecomputeMode mode = RecomputeMode::plain);
Tensors recompute(Block& block, const Tensors& inputs, RecomputeMode mode = RecomputeMode::plain);

/// Recomputes the blocks whose paths match a pattern. As in file names, `*` stands for any text without a dot.
/// @param model     named (build() does that); outlives the tap
/// @param patterns  such as "block*" or "layer*.1"
/// @throws ConfigError  a pattern matches no block
Tap recompute_tap(const Block& model, const std::vector<std::string>& patterns,
                  RecomputeMode mode = RecomputeMode::plain);

/// Whether this thread is running a forward again, so that what a forward does once per batch must not happen.
bool is_recomputing() noexcept;

}  // namespace lockstep::models
