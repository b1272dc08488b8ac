// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/models/block.hpp>

#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>

#include <string>

namespace lockstep::models {

class Model;

/// The path of the TorchScript archive that computes this model, if its code calls batch norm; otherwise empty.
std::string script_with_batch_norm(const Model& model);

/// A module inside a TorchScript archive: owns its parameters, buffers and submodules under their names, and passes the
/// mode of training on. It has no forward, because the code of the archive calls the modules.
class ScriptPart : public torch::nn::Module {
 public:
  /// @throws c10::Error  a name contains a dot or occurs twice
  explicit ScriptPart(const torch::jit::Module& module);

  void train(bool is_training = true) override;
  LayerKind kind() const noexcept { return kind_; }

 private:
  torch::jit::Module module_;
  LayerKind kind_;
};

}  // namespace lockstep::models
