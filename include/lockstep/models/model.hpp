// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/batch.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/core/task.hpp>
#include <lockstep/families/family.hpp>
#include <lockstep/models/block.hpp>
#include <lockstep/models/loss.hpp>

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

/// One entry of a LossMap: a tensor, with its mean as value, or a list or map of tensors, with the sum of their means
/// as value.
struct LossTerm {
  LossTerm(at::Tensor term) : parts{std::move(term)} {}
  LossTerm(std::vector<at::Tensor> terms) : parts(std::move(terms)) {}
  template <std::same_as<std::map<std::string, at::Tensor>> Map>  // not created from braces
  LossTerm(const Map& terms) {
    for (const auto& [name, term] : terms) {
      names.push_back(name);
      parts.push_back(term);
    }
  }

  std::vector<at::Tensor> parts;
  std::vector<std::string> names = {};  ///< names of the parts of a map
  bool is_of_task = false;              ///< the default of the kind of the task, see LossWeights::are_of_task
};

/// The losses of one micro-batch by name, and other values to log. By default, the sum of the entries with "loss" in
/// their name is trained.
using LossMap = std::vector<std::pair<std::string, LossTerm>>;

/// Factors on the losses of a micro-batch, such that the average over the forward passes and ranks of a step is the
/// mean over all items of the step.
struct LossWeights {
  LossWeights(double weight = 1) : usual(weight) {}

  double usual;  ///< factor of losses that are not in by_name
  /// Factors of losses with their own counts, see Model::counts.
  std::vector<std::pair<std::string, double>> by_name = {};
  /// [] float64: the factors of by_name in the memory of the device, where each launch of a captured step reads them.
  /// Empty = by_name has them.
  std::vector<at::Tensor> live = {};
  bool are_of_task = false;    ///< by_name is for the default losses of the task; a model's own have the usual weight
  bool count_nothing = false;  ///< no item of the whole step counts in the losses of by_name

  /// The remaining factor on a total that was parsed with these weights.
  double of_total() const { return by_name.empty() ? usual : 1; }
};

struct ParsedLosses {
  at::Tensor total;  ///< [] in the autograd graph, for backward; with weights by name, the weighted sum
  /// [] detached: "loss" (the total), then the entries in order. An entry named "loss" has the name "loss_raw", unless
  /// it is the total. The elements of a map follow their entry as "entry/element".
  std::vector<std::pair<std::string, at::Tensor>> values;
  bool is_of_task = false;  ///< all losses are the defaults of the kind of the task
  bool is_void = false;     ///< nothing of the step counts in any trained loss: its update must be skipped
};

/// The entries of a LossMap that are trained.
enum class LossSum { named, all, main };

/// @param sum      named = entries with "loss" in their name; all = every entry; main = the entry named "loss"
/// @param weights  weights by name are applied to the total, but not to the values; a weight of 0 excludes its loss,
///                 even if it is not finite
/// @throws ConfigError  no entry is trained, an entry has no tensor, or a weight has no entry
ParsedLosses parse_losses(const LossMap& losses, LossSum sum = LossSum::named, const LossWeights& weights = {});

/// The values as numbers, in order. Requires one copy and, on a GPU, one synchronization.
std::vector<std::pair<std::string, double>> host_values(const ParsedLosses& losses);

/// The total of parse_losses.
at::Tensor total_loss(const LossMap& losses);

/// The places of a model where public weights often have another size, by its family. An empty path = there is no such
/// place.
struct Anatomy {
  std::string head = {};       ///< the one module that computes the outputs, such as "fc"; empty if there are several
  std::string stem = {};       ///< convolution that reads the images, such as "conv1"
  std::string positions = {};  ///< parameter [1, prefix_tokens + height * width, E]: learned positions of a grid
  std::int64_t prefix_tokens = 0;
  std::int64_t grid_height = 0;
  std::int64_t grid_width = 0;
};

/// The predictions of a model for a batch, by name: "classes" [N] or [N, T] int64, "masks" of images [N, ...], or
/// others of your own model.
using Predictions = batch::Outputs;

class FieldNormalization;

/// The base class of models. Derive from it, register layers as in LibTorch, and call blocks through models::run.
///
/// A model with one input and one output tensor overrides forward and, if the defaults for the kind of the task do not
/// fit, losses and predict. Any other model overrides forward_batch, losses_of and predictions_of.
class Model : public Block {
 public:
  /// Prepares a batch on the device of the model, without gradients, in training, validation and test steps:
  /// normalizes, pads or mixes samples. The default applies model.preprocess.
  virtual batch::Batch preprocess(batch::Batch batch, bool is_training) const;

  /// Mode "tensor": computes the outputs for a preprocessed batch. The default calls forward with the input.
  virtual batch::Outputs forward_batch(const batch::Batch& batch);

  /// Mode "loss" of models with one output and one target: the losses of a forward pass, each a mean over the
  /// micro-batch. The default is one entry "loss", which depends on the kind of the task: cross-entropy for classes,
  /// pixels and tokens, binary cross-entropy for labels, mean squared error for regression.
  /// @param output  the result of forward
  /// @param target  the target of the data set
  /// @throws ConfigError  by default, for custom tasks
  virtual LossMap losses(const at::Tensor& output, const at::Tensor& target) const;
  /// Mode "loss". The default calls `losses` with the main output and the target. The mean of each loss is logged under
  /// its name, including a factor that this function applies.
  /// @param outputs  the result of forward_batch. With train.precision=bf16 or fp16 they can have 16 bits: convert them
  ///                 with `.to(at::kFloat)`. Targets keep their type
  virtual LossMap losses_of(const batch::Outputs& outputs, const batch::Batch& batch) const;

  /// The number of items (tokens, pixels, labeled samples) in the mean of each loss, by the name of the loss, computed
  /// from the batch only. It becomes the weight of micro-batches, lanes and ranks. All batches must have the same
  /// names, and each must be the name of a loss, which need not be trained. For other losses, the number of samples is
  /// used; default losses count the targets that are not ignored. The default is empty.
  /// @param batch  the batch of the data set, on the CPU and not preprocessed
  virtual std::vector<std::pair<std::string, double>> counts(const batch::Batch& batch) const;

  /// Mode "predict" of models with one output. The default depends on the kind of the task: "classes" or "masks" with
  /// the highest score, "labels" with a score above 0, or the "values" of a regression.
  /// @param output  the result of forward
  /// @throws ConfigError  by default, for custom tasks
  virtual Predictions predict(const at::Tensor& output) const;
  /// Mode "predict". The default calls `predict` with the main output. The batch needs no target.
  virtual Predictions predictions_of(const batch::Outputs& outputs, const batch::Batch& batch) const;

  /// The family that ModelRow states; set by build().
  const families::FamilyRow& family() const noexcept { return family_; }
  /// The places where public weights may be adapted to this model; set by build().
  const Anatomy& anatomy() const noexcept { return anatomy_; }
  /// @param task  of the data for which the model was created
  void set_family(families::FamilyRow family, const Task& task);

  /// The kind of the task, which selects the defaults above; set by build().
  TaskKind task_kind() const noexcept { return task_kind_; }
  void set_task_kind(TaskKind kind) noexcept { task_kind_ = kind; }
  /// The preprocessing of the first input by default; empty = none.
  using InputChange = std::function<at::Tensor(const batch::Value& input)>;
  void set_input_change(InputChange change) { input_change_ = std::move(change); }
  /// Normalizes fields around forward_batch, so that the inputs, outputs and targets of a batch are in their units. Its
  /// buffers are part of the state. Null = the task has nothing to normalize; set by build().
  const FieldNormalization* normalization() const noexcept { return normalization_.get(); }
  /// @param dtype  type of the buffers
  void set_normalization(const FieldScaling& scaling, at::ScalarType dtype);
  /// The loss that replaces losses_of; empty = none does.
  void set_loss(Loss loss) { loss_ = std::move(loss); }
  const Loss& loss() const noexcept { return loss_; }

 private:
  Loss loss_;
  InputChange input_change_;
  std::shared_ptr<FieldNormalization> normalization_;
  TaskKind task_kind_ = TaskKind::classification;
  families::FamilyRow family_;
  Anatomy anatomy_;
};

/// Runs a model on a preprocessed batch; fields are normalized before and get their units back afterwards. Taps observe
/// the blocks inside it, not the model.
/// @throws ConfigError  like `run` of a block
batch::Outputs run(Model& model, const batch::Batch& batch);

/// The losses for the outputs of the model: that of Model::set_loss as "loss", or those of the model. They compare
/// fields divided by the scales of their channels.
/// @throws DataError  the model threw an exception other than an error of Lockstep; the message states the samples of
///                    the batch
LossMap losses_of(const Model& model, const batch::Outputs& outputs, const batch::Batch& batch);

/// The mean cross-entropy over all targets other than data::kIgnored.
/// @param logits  [N, C] or [N, T, C], unnormalized
/// @param target  [N] or [N, T] int64 in [0, C), or -100 = ignored
/// @return        [] scalar; NaN if all targets are ignored
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& target);

/// The settings of section `model` that do not depend on the model.
struct ModelSettings {
  std::string name;                         ///< name of a row of the table of models
  std::vector<std::string> recompute = {};  ///< patterns of the blocks to recompute in backward
  std::string preprocess = "none";          ///< "image" (see ImagePreprocessor) or "none"

  static KeySpecs keys();
  static ModelSettings from(const Section& model);
};

/// Creates a model from its keys. The values that its family states for them are set. Keys of other sections are not
/// available: a factor of a loss that the model computes itself is a key of section `model`.
/// @throws ConfigError  the options contradict each other or the task
using MakeModel = std::function<std::shared_ptr<Model>(const Section& model, const Task& task)>;

/// A row of the table of models. A program can append rows to engine::Registry::models.
struct ModelRow {
  std::string name;
  std::string help;
  KeySpecs keys;  ///< keys of section `model`
  MakeModel make;
  families::FamilyRow family = {};  ///< what else is known about the model: names, layers, other libraries, ...
};

/// The rows of a family, one for each of its presets. A program appends them for a family of its own.
std::vector<ModelRow> models_of(const families::FamilyRow& family, const MakeModel& make);

/// The families of the rows, each once.
std::vector<families::FamilyRow> families_of(const std::vector<ModelRow>& rows);

/// The models of families::builtin_families().
const std::vector<ModelRow>& builtin_models();

/// Creates the model that `model.name` selects. The initial parameters are a pure function of `seed`. Not collective.
/// @param dtype  type of parameters and floating-point buffers
/// @throws ConfigError  the name is unknown (the message lists the known names); also the errors of the row
std::shared_ptr<Model> build(const Section& model, const Task& task, std::uint64_t seed, at::ScalarType dtype,
                             const std::vector<ModelRow>& rows = builtin_models());

/// The keys of section `model`: the common ones and those of every row.
KeySpecs model_keys(const std::vector<ModelRow>& rows = builtin_models());

}  // namespace lockstep::models
