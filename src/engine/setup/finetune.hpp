// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/engine/hook.hpp>
#include <lockstep/models/model.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::engine {

/// Parameters that join the training later.
struct Unfreezing {
  std::vector<std::string> patterns;
  std::int64_t step = 0;   ///< number of updates without them; 0 = the epoch counts
  std::int64_t epoch = 0;  ///< number of epochs without them
};

/// Section `finetune`: the parameters of a run that are trained.
struct FinetuneSettings {
  std::vector<std::string> train;  ///< all, head, norms, biases, or patterns
  std::vector<Unfreezing> unfreezings;
  bool freezes_batch_norm = true;
  std::string train_cite;
  std::string unfreeze_cite;

  static KeySpecs keys();
  /// @throws ConfigError  finetune.unfreeze is not a list of PATTERN@500 and PATTERN@2epochs
  static FinetuneSettings from(const Section& finetune);
};

/// Leaves `requires_grad` to the parameters that are trained from the start or later. The wrapper has neither buckets
/// nor optimizer states for the others, and backward ends above them. Before the model is wrapped; not collective.
/// @throws ConfigError  a name has no parameter, or the model names no head
void choose_trained(models::Model& model, const FinetuneSettings& settings);

/// Keep batch norm layers without trained parameters in evaluation mode, and hold parameters that join later.
std::vector<PrioritizedHook> finetune_hooks(const FinetuneSettings& settings);

}  // namespace lockstep::engine
