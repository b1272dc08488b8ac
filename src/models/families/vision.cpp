// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/models/layers.hpp>
#include <lockstep/models/model.hpp>

#include <ATen/ops/relu.h>
#include <torch/types.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "core/text/table.hpp"
#include "models/families/rows.hpp"
#include "models/layers/space_layers.hpp"

namespace lockstep::models {

namespace {

struct MlpOptions {
  std::vector<std::int64_t> widths;  ///< widths of the hidden layers
  double dropout = 0;
  at::Tensor (*activation)(const at::Tensor& input) = at::relu;
  std::string norm = "none";  ///< normalization before each activation: none, batch or layer
  bool is_residual = false;   ///< adds the input of each hidden layer of equal width to its output
  bool standardizes = false;  ///< inputs, and the real-valued targets, by their moments in the task

  /// The keys of section `model`.
  static MlpOptions from(const Section& model);
};

/// Linear layers with activations between them. [N, ...] -> [N, outputs]
class Mlp : public Model {
 public:
  Mlp(const MlpOptions& options, const Task& task);

  at::Tensor forward(const at::Tensor& input) override;
  /// The loss with standardization: the squared error of standardized values, whatever the unit of the targets is.
  LossMap losses(const at::Tensor& output, const at::Tensor& target) const override;

 private:
  /// Mean and standard deviation of each element, as buffers.
  struct Standardization {
    at::Tensor mean;
    at::Tensor deviation;
  };
  Standardization register_moments(const std::string& name, std::int64_t count, const Moments& moments);

  bool is_residual_;
  at::Tensor (*activation_)(const at::Tensor& input);
  Standardization input_;   // undefined without standardization
  Standardization target_;  // undefined without standardization and for classes
  std::vector<std::shared_ptr<Linear>> hidden_;
  std::vector<std::shared_ptr<Block>> norms_;  // one for each hidden layer, or none
  std::shared_ptr<Dropout> dropout_;
  std::shared_ptr<Linear> head_;
};

struct ActivationRow {
  std::string name;
  at::Tensor (*compute)(const at::Tensor& input);
};

const std::vector<ActivationRow>& activations() {
  static const std::vector<ActivationRow> rows = {
      {"relu", [](const at::Tensor& input) { return at::relu(input); }},
      {"gelu", [](const at::Tensor& input) { return at::gelu(input); }},
      {"silu", [](const at::Tensor& input) { return at::silu(input); }},
      {"tanh", [](const at::Tensor& input) { return at::tanh(input); }},
  };
  return rows;
}

std::shared_ptr<Block> mlp_norm(const std::string& name, std::int64_t width) {
  if (name == "batch") return std::make_shared<BatchNorm>(width);
  return std::make_shared<LayerNorm>(width);
}

/// Per entry of `model.channels`: convolution 3x3, ReLU, max-pooling 2x2; then the layers of an mlp.
class Cnn : public Model {
 public:
  Cnn(const Section& model, const Task& task) {
    std::int64_t channels = task.sample_shape[0];
    std::int64_t height = task.sample_shape[1];
    std::int64_t width = task.sample_shape[2];
    for (const std::int64_t out : model.integers("channels")) {
      convs_.push_back(
          register_module("conv" + std::to_string(convs_.size()), std::make_shared<Conv2d>(channels, out, 3)));
      channels = out;
      height /= 2;
      width /= 2;
    }
    if (height * width == 0) {
      throw ConfigError(model.cite("channels") + ": too many levels for images of " +
                        std::to_string(task.sample_shape[1]) + " x " + std::to_string(task.sample_shape[2]));
    }
    Task features = task;
    features.sample_shape = {channels * height * width};
    const MlpOptions options{.widths = model.integers("hidden"), .dropout = model.real("dropout")};
    classifier_ = register_module("classifier", std::make_shared<Mlp>(options, features));
  }

  at::Tensor forward(const at::Tensor& input) override {
    at::Tensor x = input;
    for (const auto& conv : convs_) x = at::max_pool2d(at::relu(run(*conv, x)), 2);
    return run(*classifier_, x);
  }

 private:
  std::vector<std::shared_ptr<Conv2d>> convs_;
  std::shared_ptr<Mlp> classifier_;
};

}  // namespace

MlpOptions MlpOptions::from(const Section& model) {
  MlpOptions options{.widths = model.integers("hidden"),
                     .dropout = model.real("dropout"),
                     .activation = find_row(activations(), model.text("activation"), model.cite("activation")).compute,
                     .norm = model.text("norm"),
                     .is_residual = model.boolean("residual"),
                     .standardizes = model.boolean("standardize")};
  if (options.norm == "group") throw ConfigError(model.cite("norm") + ": for mlp, choose one of: none, batch, layer");
  return options;
}

Mlp::Mlp(const MlpOptions& options, const Task& task)
    : is_residual_(options.is_residual), activation_(options.activation) {
  std::int64_t features =
      std::accumulate(task.sample_shape.begin(), task.sample_shape.end(), std::int64_t{1}, std::multiplies<>());
  if (options.standardizes) {
    input_ = register_moments("input", features, task.input_moments);
    if (task.kind == TaskKind::regression)
      target_ = register_moments("target", output_channels(task), task.target_moments);
  }
  for (const std::int64_t width : options.widths) {
    const std::string number = std::to_string(hidden_.size());
    hidden_.push_back(register_module("hidden" + number, std::make_shared<Linear>(features, width)));
    if (options.norm != "none") norms_.push_back(register_module("norm" + number, mlp_norm(options.norm, width)));
    features = width;
  }
  dropout_ = register_module("dropout", std::make_shared<Dropout>(options.dropout));
  head_ = register_module("head", std::make_shared<Linear>(features, output_channels(task)));
}

Mlp::Standardization Mlp::register_moments(const std::string& name, std::int64_t count, const Moments& moments) {
  const auto registered = [&](const char* part, const std::vector<double>& values, double otherwise) {
    if (!values.empty() && std::ssize(values) != count) {
      throw ConfigError("model.standardize: there are " + std::to_string(values.size()) + " statistics for " +
                        std::to_string(count) + " values of the " + name + "; check " + name +
                        "_moments of the task of the data set");
    }
    const at::Tensor initial =
        values.empty() ? torch::full({count}, otherwise, at::kDouble) : torch::tensor(values, at::kDouble);
    return register_buffer(name + "_" + part, initial.to(at::get_default_dtype_as_scalartype()));
  };
  return {registered("mean", moments.mean, 0), registered("deviation", moments.deviation, 1)};
}

at::Tensor Mlp::forward(const at::Tensor& input) {
  at::Tensor x = input.flatten(1);
  if (input_.mean.defined()) x = (x - input_.mean) / input_.deviation;
  for (std::size_t i = 0; i < hidden_.size(); ++i) {
    at::Tensor inner = run(*hidden_[i], x);
    if (!norms_.empty()) inner = run(*norms_[i], inner);
    inner = run(*dropout_, activation_(inner));
    x = is_residual_ && inner.sizes() == x.sizes() ? x + inner : inner;
  }
  const at::Tensor output = run(*head_, x);
  return target_.mean.defined() ? output * target_.deviation + target_.mean : output;
}

LossMap Mlp::losses(const at::Tensor& output, const at::Tensor& target) const {
  if (!target_.mean.defined() || task_kind() != TaskKind::regression) return Model::losses(output, target);
  const at::Tensor difference = (output - target.to(output.scalar_type()).view_as(output)) / target_.deviation;
  return {{"loss", difference.square().mean()}};
}

std::shared_ptr<Model> make_mlp(const Section& model, const Task& task) {
  require_images("mlp", task, 0);
  require_head(model, task);
  if (!task.fields.channels.empty() && task.sample_shape.size() > 1) {
    throw ConfigError("model.name: mlp computes one value of each channel, but the fields of the data have " +
                      axes_text(task.sample_shape.size() - 1) + " of space; use unet or fno");
  }
  const MlpOptions options = MlpOptions::from(model);
  if (options.standardizes && !task.fields.scaling.input_shift.empty()) {
    throw ConfigError(model.cite("standardize") +
                      ": data.normalize normalizes the fields already; use data.normalize=none, or leave out "
                      "model.standardize");
  }
  return std::make_shared<Mlp>(options, task);
}

void require_images(const std::string& name, const Task& task, std::size_t dims) {
  if (task.is_text) throw ConfigError("model.name: " + name + " needs images, but data.name provides text");
  if (dims != 0 && task.sample_shape.size() != dims) {
    throw ConfigError("model.name: " + name + " needs samples of shape [channels, height, width]");
  }
}

void require_pixels(const std::string& name, const Task& task, std::int64_t smallest) {
  const std::int64_t height = task.sample_shape[1];
  const std::int64_t width = task.sample_shape[2];
  const std::int64_t side = std::min(height, width);
  if (side <= 0 || side >= smallest) return;  // images of several sizes have side 0
  throw ConfigError("model.name: " + name + " needs images of at least " + std::to_string(smallest) + " x " +
                    std::to_string(smallest) + " pixels, but they have " + std::to_string(height) + " x " +
                    std::to_string(width) + "; make them larger in data.transform");
}

void require_head(const Section& model, const Task& task) {
  const std::string& head = model.text("head");
  const bool is_real = task.kind == TaskKind::regression;
  if (head == "auto" || task.kind == TaskKind::custom || (head == "real") == is_real) return;
  throw ConfigError(model.cite("head") + ": the targets of the data are " +
                    (is_real ? "real numbers; use real" : "classes or labels; use classes"));
}

void require_fields(const std::string& name, const Task& task) {
  const bool has_fields =
      task.kind == TaskKind::segmentation || task.kind == TaskKind::regression || task.kind == TaskKind::custom;
  if (has_fields) return;
  throw ConfigError("model.name: " + name +
                    " needs a target for each pixel: masks of classes (data.target=mask) or fields of real numbers");
}

std::shared_ptr<Model> make_cnn(const Section& model, const Task& task) {
  require_images("cnn", task, 3);
  return std::make_shared<Cnn>(model, task);
}

}  // namespace lockstep::models
