// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/batch.hpp>
#include <lockstep/batch/outputs.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/core/section.hpp>
#include <lockstep/core/task.hpp>
#include <lockstep/models/block.hpp>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::models {

/// One entry of a LossMap: a tensor, which counts as its mean, or a list or map of tensors, which counts as the sum of
/// their means.
struct LossTerm {
  LossTerm(at::Tensor term) : parts{std::move(term)} {}
  LossTerm(std::vector<at::Tensor> terms) : parts(std::move(terms)) {}
  template <std::same_as<std::map<std::string, at::Tensor>> Map>  // which braces do not become
  LossTerm(const Map& terms) {
    for (const auto& [name, term] : terms) {
      names.push_back(name);
      parts.push_back(term);
    }
  }

  std::vector<at::Tensor> parts;
  std::vector<std::string> names = {};  ///< of the parts, if it is a map
};

/// Named losses of one micro_batch, and what else is to be logged with them. Those whose name contains "loss" are
/// summed into what is trained.
using LossMap = std::vector<std::pair<std::string, LossTerm>>;

/// By what a micro_batch's losses are multiplied, so that the average over the forwards and ranks of a step is the mean
/// over all of the step's items.
struct LossWeights {
  LossWeights(double weight = 1) : usual(weight) {}

  double usual;                                              ///< of losses that by_name does not have
  std::vector<std::pair<std::string, double>> by_name = {};  ///< of losses with counts of their own, see Model::counts

  /// What the total of losses that were parsed with these weights remains to be multiplied by.
  double of_total() const { return by_name.empty() ? usual : 1; }
};

struct ParsedLosses {
  at::Tensor total;  ///< [] with its history: what backward starts from; with weights by name, their weighted sum
  /// [] without a history: "loss", the total, then the entries in their order. An entry that is itself called "loss"
  /// is there as "loss_raw", unless it is the total. The elements of a map follow their entry, as "entry/element".
  std::vector<std::pair<std::string, at::Tensor>> values;
};

/// Which entries of a LossMap are trained.
enum class LossSum { named, all, main };

/// @param sum      named: entries whose name contains "loss"; all: every entry; main: the one called "loss"
/// @param weights  those by name are applied to the total, but not to the values; one of 0 leaves its loss out, even
///                 where it is not finite
/// @throws ConfigError  no entry is trained, one has no tensor, or a weight is of no entry
ParsedLosses parse_losses(const LossMap& losses, LossSum sum = LossSum::named, const LossWeights& weights = {});

/// Its values as numbers, in their order. One copy, and on a GPU one wait.
std::vector<std::pair<std::string, double>> host_values(const ParsedLosses& losses);

/// The total of parse_losses.
at::Tensor total_loss(const LossMap& losses);

/// What a model says about a batch, to be looked at, by name: "classes" [N] or [N, T] int64, "masks" of images [N,
/// ...], or whatever a user's model adds.
using Predictions = batch::Outputs;

/// What Lockstep trains. Derive from it, register layers as usual, and call blocks through models::run.
///
/// A model of one tensor in and one tensor out overrides forward and, where it is not classification, losses and
/// predict. Any other model overrides forward_batch, losses_of and predictions_of.
class Model : public Block {
 public:
  /// Prepares a batch on the model's device, with gradients off, in training, validation and test steps alike: to
  /// normalize, pad or mix samples. The default does what model.preprocess says, which may be nothing.
  virtual batch::Batch preprocess(batch::Batch batch, bool is_training) const;

  /// Mode "tensor": what the model returns for a batch, as preprocess left it. The default is forward of the input.
  virtual batch::Outputs forward_batch(const batch::Batch& batch);

  /// Mode "loss" of models with one output and one target: the losses of a forward pass, each a mean over the
  /// micro_batch. The default is one called "loss", by the kind of the task: cross-entropy for classes, pixels and
  /// tokens, binary cross-entropy for labels, mean squared error for regression.
  /// @param output  what forward gave
  /// @param target  as the data set gives it
  /// @throws ConfigError  the default, of a custom task
  virtual LossMap losses(const at::Tensor& output, const at::Tensor& target) const;
  /// Mode "loss". The default is `losses` of the main output and the target.
  /// @param outputs  what forward_batch gave
  virtual LossMap losses_of(const batch::Outputs& outputs, const batch::Batch& batch) const;

  /// How many items the mean of each loss runs over (tokens, pixels, labeled samples), by the loss's name, from the
  /// batch alone. Micro-batches, lanes and ranks with more of them then weigh more. All batches name the same losses; a
  /// loss that is not named counts samples. The default is none.
  /// @param batch  as the data set gave it
  virtual std::vector<std::pair<std::string, double>> counts(const batch::Batch& batch) const;

  /// Mode "predict" of models with one output. The default goes by the kind of the task: "classes" or "masks" with the
  /// highest score, "labels" with a score above 0, or the "values" of a regression.
  /// @param output  what forward gave
  /// @throws ConfigError  the default, of a custom task
  virtual Predictions predict(const at::Tensor& output) const;
  /// Mode "predict". The default is `predict` of the main output. The batch needs no target.
  virtual Predictions predictions_of(const batch::Outputs& outputs, const batch::Batch& batch) const;

  /// Its layers from the input to the output, each as beginnings of parameter names, for learning rates that fall from
  /// layer to layer. The default goes by numbers: each `block3` or `blocks.3` is a layer, in the order of registration;
  /// what has none belongs to the first layer before them and to the last one after them.
  virtual std::vector<std::vector<std::string>> layers() const;

  /// The kind of the task that decides the defaults above; build() sets it.
  TaskKind task_kind() const noexcept { return task_kind_; }
  void set_task_kind(TaskKind kind) noexcept { task_kind_ = kind; }
  /// What preprocess does to the value of the first input by default; empty = nothing.
  using InputChange = std::function<at::Tensor(const batch::Value& input)>;
  void set_input_change(InputChange change) { input_change_ = std::move(change); }

 private:
  InputChange input_change_;
  TaskKind task_kind_ = TaskKind::classification;
};

/// Runs a model on a batch that it has preprocessed. Taps see the blocks inside it, not the model itself.
/// @throws ConfigError  as run of a block
batch::Outputs run(Model& model, const batch::Batch& batch);

/// The model's losses of what it returned.
/// @throws DataError  whatever the model throws beside errors of Lockstep; the message names the batch's samples
LossMap losses_of(const Model& model, const batch::Outputs& outputs, const batch::Batch& batch);

/// Mean cross-entropy over all targets that are not data::kIgnored.
/// @param logits  [N, C] or [N, T, C], unnormalized
/// @param target  [N] or [N, T] int64 in [0, C), or -100: not counted
/// @return        [] scalar; NaN when nothing is counted
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& target);

/// The keys of section `model` that do not depend on the model.
struct ModelSettings {
  std::string name;                         ///< a row of the table of models
  std::vector<std::string> recompute = {};  ///< patterns of the blocks whose forward runs again in backward
  std::string preprocess = "none";          ///< image, see ImagePreprocessor, or none

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
