// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/core/section.hpp>
#include <lockstep/core/task.hpp>
#include <lockstep/models/block.hpp>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::models {

/// One entry of a LossMap: a tensor, which counts as its mean, or a list of tensors, which counts as the sum of their
/// means.
struct LossTerm {
  LossTerm(at::Tensor term) : parts{std::move(term)} {}
  LossTerm(std::vector<at::Tensor> terms) : parts(std::move(terms)) {}

  std::vector<at::Tensor> parts;
};

/// Named losses of one micro_batch, and what else is to be logged with them. Those whose name contains "loss" are
/// summed into what is trained.
using LossMap = std::vector<std::pair<std::string, LossTerm>>;

struct ParsedLosses {
  at::Tensor total;  ///< [] with its history: what backward starts from
  /// [] without a history: "loss", the total, then the entries in their order. An entry that is itself called "loss"
  /// is there as "loss_raw", unless it is the total.
  std::vector<std::pair<std::string, at::Tensor>> values;
};

/// Which entries of a LossMap are trained.
enum class LossSum { named, all, main };

/// @param sum  named: entries whose name contains "loss"; all: every entry; main: the one called "loss"
/// @throws ConfigError  no entry is trained, or one has no tensor
ParsedLosses parse_losses(const LossMap& losses, LossSum sum = LossSum::named);

/// Its values as numbers, in their order. One copy, and on a GPU one wait.
std::vector<std::pair<std::string, double>> host_values(const ParsedLosses& losses);

/// The total of parse_losses.
at::Tensor total_loss(const LossMap& losses);

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
