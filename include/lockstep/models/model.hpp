// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/key_spec.hpp>
#include <lockstep/core/section.hpp>
#include <lockstep/core/task.hpp>
#include <lockstep/models/block.hpp>
#include <lockstep/models/losses.hpp>

#include <torch/nn/module.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::models {

/// What a model says about a batch, to be looked at; undefined where it says nothing of the kind.
struct Predictions {
  at::Tensor classes;  ///< [N] or [N, T] int64
  at::Tensor masks;    ///< of pictures, [N, ...]
};

/// Tensors by name.
using NamedTensors = std::map<std::string, at::Tensor>;

/// What Lockstep trains. Derive from it, register layers as usual, and call blocks through models::run.
class Model : public Block {
 public:
  /// The forward of samples with several inputs. The default looks at the first one alone.
  /// @param more  what samples have beside it, see data::Batch::more; of the model's device, and floating-point ones of
  ///              its type
  virtual at::Tensor forward_all(const at::Tensor& input, const NamedTensors& more);

  /// Its mode "loss": the losses of a forward pass, each a mean over the micro_batch. The default is
  /// {"loss", cross_entropy}.
  /// @param output  what forward gave
  /// @param target  as the data set gives it
  virtual LossMap losses(const at::Tensor& output, const at::Tensor& target) const;

  /// Its mode "predict". The default takes the class with the highest score. (What forward gives is the mode "tensor".)
  /// @param output  what forward gave
  virtual Predictions predict(const at::Tensor& output) const;

  /// Its layers from the input to the output, each as beginnings of parameter names, for learning rates that fall from
  /// layer to layer. The default goes by numbers: each `block3` or `blocks.3` is a layer, in the order of registration;
  /// what has none belongs to the first layer before them and to the last one after them.
  virtual std::vector<std::vector<std::string>> layers() const;
};

/// Runs a model, as models::run does a block.
at::Tensor run_all(Model& model, const at::Tensor& input, const NamedTensors& more);

/// Mean cross-entropy over all targets that are not data::kIgnored.
/// @param logits  [N, C] or [N, T, C], unnormalised
/// @param target  [N] or [N, T] int64 in [0, C), or -100: not counted
/// @return        [] scalar; NaN when nothing is counted
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& target);

/// The keys of section `model` that do not depend on the model.
struct ModelSettings {
  std::string name;                         ///< a row of the table of models
  std::vector<std::string> recompute = {};  ///< patterns of the blocks whose forward runs again in backward

  static KeySpecs keys();
  static ModelSettings from(const Section& model);
};

/// A row of the table of models. A user's program adds rows.
struct ModelRow {
  std::string name;
  std::string help;
  KeySpecs keys;  ///< of section `model`
  /// @throws ConfigError  options that do not fit each other or the task
  std::shared_ptr<Model> (*make)(const Section& model, const Task& task);
};

/// mlp, cnn, gpt, resnet18.
const std::vector<ModelRow>& builtin_models();

/// Builds what `model.name` names; the initial parameters are a pure function of `seed`. Not collective.
/// @param dtype  of parameters and floating-point buffers
/// @throws ConfigError  unknown name, with the known ones; and whatever the row throws
std::shared_ptr<Model> build(const Section& model, const Task& task, std::uint64_t seed, at::ScalarType dtype,
                             const std::vector<ModelRow>& rows = builtin_models());

/// The keys of section `model`: the common ones and those of every row.
KeySpecs model_keys(const std::vector<ModelRow>& rows = builtin_models());

}  // namespace lockstep::models
