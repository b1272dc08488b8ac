// SPDX-License-Identifier: BSD-3-Clause
#include "ddp_models.hpp"

#include <lockstep/models/layers.hpp>

#include <cmath>
#include <limits>
#include <map>
#include <stdexcept>

namespace lockstep::testing::reference {

namespace {

using models::Linear;

/// The stored parameters of a model, by name. Layers take their sizes from them.
struct Initial {
  const Json& tensors;

  std::int64_t size(const std::string& name, std::size_t dimension) const {
    return tensors.at(name).at("shape").at(dimension);
  }
  std::shared_ptr<Linear> linear(const std::string& name, bool has_bias = true) const {
    return std::make_shared<Linear>(size(name + ".weight", 1), size(name + ".weight", 0), has_bias);
  }
  std::shared_ptr<models::Conv2d> conv(const std::string& name, const models::Conv2dOptions& options) const {
    const std::string weight = name + ".weight";
    return std::make_shared<models::Conv2d>(size(weight, 1), size(weight, 0), size(weight, 2), options);
  }
  std::shared_ptr<models::BatchNorm> norm(const std::string& name) const {
    return std::make_shared<models::BatchNorm>(size(name + ".weight", 0));
  }
};

/// fc1, tanh, fc2, tanh, fc3.
class MlpModel : public models::Model {
 public:
  explicit MlpModel(const Initial& initial) {
    first_ = register_module("fc1", initial.linear("fc1"));
    second_ = register_module("fc2", initial.linear("fc2"));
    third_ = register_module("fc3", initial.linear("fc3"));
  }
  at::Tensor forward(const at::Tensor& input) override {
    return run(*third_, at::tanh(run(*second_, at::tanh(run(*first_, input)))));
  }

 private:
  std::shared_ptr<Linear> first_;
  std::shared_ptr<Linear> second_;
  std::shared_ptr<Linear> third_;
};

/// conv1 without bias, bn1, ReLU, conv2 with stride 2, bn2, ReLU, mean over space, fc.
class ConvModel : public models::Model {
 public:
  explicit ConvModel(const Initial& initial) {
    conv1_ = register_module("conv1", initial.conv("conv1", {.has_bias = false}));
    norm1_ = register_module("bn1", initial.norm("bn1"));
    conv2_ = register_module("conv2", initial.conv("conv2", {.stride = 2}));
    norm2_ = register_module("bn2", initial.norm("bn2"));
    head_ = register_module("fc", initial.linear("fc"));
  }
  at::Tensor forward(const at::Tensor& input) override {
    const at::Tensor x = at::relu(run(*norm1_, run(*conv1_, input)));
    return run(*head_, at::relu(run(*norm2_, run(*conv2_, x))).mean({2, 3}));
  }

 private:
  std::shared_ptr<models::Conv2d> conv1_;
  std::shared_ptr<models::BatchNorm> norm1_;
  std::shared_ptr<models::Conv2d> conv2_;
  std::shared_ptr<models::BatchNorm> norm2_;
  std::shared_ptr<Linear> head_;
};

/// One block of a transformer with 2 heads; the head is tied to the table of tokens.
class GptModel : public models::Model {
 public:
  explicit GptModel(const Initial& initial) : features_(initial.size("wte.weight", 1)) {
    const auto table = [&](const char* weight) {
      return std::make_shared<models::Embedding>(initial.size(weight, 0), features_);
    };
    tokens_ = register_module("wte", table("wte.weight"));
    positions_ = register_module("wpe", table("wpe.weight"));
    norm1_ = register_module("ln_1", std::make_shared<models::LayerNorm>(features_));
    attention_ = register_module("c_attn", initial.linear("c_attn"));
    after_attention_ = register_module("attn_proj", initial.linear("attn_proj"));
    norm2_ = register_module("ln_2", std::make_shared<models::LayerNorm>(features_));
    widening_ = register_module("c_fc", initial.linear("c_fc"));
    narrowing_ = register_module("mlp_proj", initial.linear("mlp_proj"));
    last_norm_ = register_module("ln_f", std::make_shared<models::LayerNorm>(features_));
  }
  at::Tensor forward(const at::Tensor& input) override {
    const at::Tensor places = torch::arange(input.size(1), at::kLong);
    at::Tensor x = run(*tokens_, input) + run(*positions_, places);
    x = x + run(*after_attention_, attend(run(*norm1_, x)));
    x = x + run(*narrowing_, at::gelu(run(*widening_, run(*norm2_, x))));
    return at::matmul(run(*last_norm_, x), tokens_->weight.t());
  }

 private:
  static constexpr std::int64_t kHeads = 2;

  at::Tensor attend(const at::Tensor& x) {
    const std::int64_t samples = x.size(0);
    const std::int64_t length = x.size(1);
    const auto by_head = [&](const at::Tensor& part) {
      return part.reshape({samples, length, kHeads, features_ / kHeads}).transpose(1, 2);
    };
    const std::vector<at::Tensor> parts = run(*attention_, x).split(features_, 2);
    const at::Tensor scores =
        at::matmul(by_head(parts[0]), by_head(parts[1]).transpose(2, 3)) / std::sqrt(features_ / kHeads);
    const at::Tensor is_later = torch::ones({length, length}, at::kBool).triu(1);
    const at::Tensor weights = at::softmax(scores.masked_fill(is_later, -std::numeric_limits<double>::infinity()), 3);
    return at::matmul(weights, by_head(parts[2])).transpose(1, 2).reshape({samples, length, features_});
  }

  std::int64_t features_;
  std::shared_ptr<models::Embedding> tokens_;
  std::shared_ptr<models::Embedding> positions_;
  std::shared_ptr<models::LayerNorm> norm1_;
  std::shared_ptr<Linear> attention_;
  std::shared_ptr<Linear> after_attention_;
  std::shared_ptr<models::LayerNorm> norm2_;
  std::shared_ptr<Linear> widening_;
  std::shared_ptr<Linear> narrowing_;
  std::shared_ptr<models::LayerNorm> last_norm_;
};

/// Models whose loss is the mean square error.
class SquaredErrorModel : public models::Model {
 public:
  models::LossMap losses(const at::Tensor& output, const at::Tensor& target) const override {
    return {{"loss", at::mse_loss(output, target)}};
  }
};

/// out = tanh(x W^T) W + b.
class TiedModel : public SquaredErrorModel {
 public:
  explicit TiedModel(const Initial& initial) {
    bias_ = register_parameter("bias", torch::zeros({initial.size("bias", 0)}));
    encoder_ = register_module("enc", initial.linear("enc", /*has_bias=*/false));
  }
  at::Tensor forward(const at::Tensor& input) override {
    return at::matmul(at::tanh(run(*encoder_, input)), encoder_->weight) + bias_;
  }

 private:
  at::Tensor bias_;
  std::shared_ptr<Linear> encoder_;
};

/// trunk, tanh, then the sum of the branches in use.
class BranchesModel : public SquaredErrorModel {
 public:
  explicit BranchesModel(const Initial& initial) {
    trunk_ = register_module("trunk", initial.linear("trunk"));
    for (const char* name : {"a", "b", "c"}) branches_[name] = register_module(name, initial.linear(name));
  }
  at::Tensor forward(const at::Tensor& input) override {
    const at::Tensor x = at::tanh(run(*trunk_, input));
    at::Tensor sum;
    for (const std::string& name : in_use) {
      const at::Tensor part = run(*branches_.at(name), x);
      sum = sum.defined() ? sum + part : part;
    }
    return sum;
  }

  std::vector<std::string> in_use = {"a", "b", "c"};

 private:
  std::shared_ptr<Linear> trunk_;
  std::map<std::string, std::shared_ptr<Linear>> branches_;
};

std::shared_ptr<models::Model> make(const std::string& name, const Initial& initial) {
  if (name == "mlp") return std::make_shared<MlpModel>(initial);
  if (name == "conv") return std::make_shared<ConvModel>(initial);
  if (name == "gpt") return std::make_shared<GptModel>(initial);
  if (name == "tied") return std::make_shared<TiedModel>(initial);
  if (name == "branches") return std::make_shared<BranchesModel>(initial);
  throw std::runtime_error("no test knows the model '" + name + "'");
}

const std::vector<std::string> kNames = {"branches", "conv", "gpt", "mlp", "tied"};

}  // namespace

const Json& stored_model(const std::string& name) {
  static std::map<std::string, Json> files;
  auto found = files.find(name);
  if (found == files.end()) found = files.emplace(name, load("ddp/model_" + name + ".json")).first;
  return found->second;
}

std::shared_ptr<models::Model> build_model(const std::string& name, at::ScalarType dtype) {
  const Json& stored = stored_model(name);
  const std::shared_ptr<models::Model> model = make(name, {stored.at("initial")});
  model->to(dtype);
  std::vector<std::string> order;
  const torch::NoGradGuard no_grad;
  for (const auto& item : model->named_parameters()) {
    order.push_back(item.key());
    item.value().copy_(tensor_of(stored.at("initial").at(item.key()), dtype));
  }
  for (const auto& item : model->named_buffers()) {
    item.value().copy_(tensor_of(stored.at("initial").at(item.key()), dtype));
  }
  if (order != stored.at("parameter_order")) throw std::runtime_error(name + " has its parameters in another order");
  if (stored.at("initial").size() != order.size() + model->named_buffers().size()) {
    throw std::runtime_error(name + " does not use all stored values");
  }
  return model;
}

batch::Batch stored_batch(const std::string& model, int step, int rank, at::ScalarType dtype) {
  const Json& stored = stored_model(model);
  return {tensor_of(stored.at("x")[step][rank], dtype), tensor_of(stored.at("y")[step][rank], dtype)};
}

void use_branches(models::Model& model, const std::vector<std::string>& names) {
  dynamic_cast<BranchesModel&>(model).in_use = names;
}

std::vector<Handler> model_handlers() {
  std::vector<Handler> handlers;
  for (const std::string& name : kNames) {
    handlers.push_back({.file = "model_" + name + ".json", .extra_fields = {"parameter_order", "initial", "x", "y"}});
  }
  return handlers;
}

}  // namespace lockstep::testing::reference
