// SPDX-License-Identifier: BSD-3-Clause
#include "models/families/mlp.hpp"

#include <lockstep/core/error.hpp>

#include <torch/types.h>

#include <functional>
#include <numeric>

#include "core/text/table.hpp"
#include "models/families/rows.hpp"

namespace lockstep::models {

namespace {

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

}  // namespace

MlpOptions MlpOptions::from(const Section& model) {
  MlpOptions options{.widths = model.integers("hidden"),
                     .dropout = model.real("dropout"),
                     .activation = find_row(activations(), model.text("activation"), model.cite("activation")).compute,
                     .norm = model.text("norm"),
                     .is_residual = model.boolean("residual"),
                     .standardizes = model.boolean("standardize")};
  if (options.norm == "group") throw ConfigError(model.cite("norm") + ": mlp has none, batch or layer");
  return options;
}

Mlp::Mlp(const MlpOptions& options, const Task& task)
    : is_residual_(options.is_residual), activation_(options.activation) {
  std::int64_t features =
      std::accumulate(task.sample_shape.begin(), task.sample_shape.end(), std::int64_t{1}, std::multiplies<>());
  if (options.standardizes) {
    input_ = register_moments("input", features, task.input_moments);
    if (task.kind == TaskKind::regression) target_ = register_moments("target", task.classes, task.target_moments);
  }
  for (const std::int64_t width : options.widths) {
    const std::string number = std::to_string(hidden_.size());
    hidden_.push_back(register_module("hidden" + number, std::make_shared<Linear>(features, width)));
    if (options.norm != "none") norms_.push_back(register_module("norm" + number, mlp_norm(options.norm, width)));
    features = width;
  }
  dropout_ = register_module("dropout", std::make_shared<Dropout>(options.dropout));
  head_ = register_module("head", std::make_shared<Linear>(features, task.classes));
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
  return std::make_shared<Mlp>(MlpOptions::from(model), task);
}

}  // namespace lockstep::models
