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

/// fc1 6->8, tanh, fc2 8->8, tanh, fc3 8->4.
class MlpModel : public models::Model {
 public:
  MlpModel() {
    first_ = register_module("fc1", std::make_shared<Linear>(6, 8));
    second_ = register_module("fc2", std::make_shared<Linear>(8, 8));
    third_ = register_module("fc3", std::make_shared<Linear>(8, 4));
  }
  at::Tensor forward(const at::Tensor& input) override {
    return run(*third_, at::tanh(run(*second_, at::tanh(run(*first_, input)))));
  }

 private:
  std::shared_ptr<Linear> first_;
  std::shared_ptr<Linear> second_;
  std::shared_ptr<Linear> third_;
};

/// conv1 2->4, bn1, ReLU, conv2 4->6 with stride 2, bn2, ReLU, mean over space, fc 6->3.
class ConvModel : public models::Model {
 public:
  ConvModel() {
    conv1_ =
        register_module("conv1", std::make_shared<models::Conv2d>(2, 4, 3, models::Conv2dOptions{.has_bias = false}));
    norm1_ = register_module("bn1", std::make_shared<models::BatchNorm>(4));
    conv2_ = register_module("conv2", std::make_shared<models::Conv2d>(4, 6, 3, models::Conv2dOptions{.stride = 2}));
    norm2_ = register_module("bn2", std::make_shared<models::BatchNorm>(6));
    head_ = register_module("fc", std::make_shared<Linear>(6, 3));
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

/// One block of a transformer with 2 heads of 4 features; the head is tied to the table of tokens.
class GptModel : public models::Model {
 public:
  GptModel() {
    tokens_ = register_module("wte", std::make_shared<models::Embedding>(11, kFeatures));
    positions_ = register_module("wpe", std::make_shared<models::Embedding>(6, kFeatures));
    norm1_ = register_module("ln_1", std::make_shared<models::LayerNorm>(kFeatures));
    attention_ = register_module("c_attn", std::make_shared<Linear>(kFeatures, 3 * kFeatures));
    after_attention_ = register_module("attn_proj", std::make_shared<Linear>(kFeatures, kFeatures));
    norm2_ = register_module("ln_2", std::make_shared<models::LayerNorm>(kFeatures));
    widening_ = register_module("c_fc", std::make_shared<Linear>(kFeatures, 4 * kFeatures));
    narrowing_ = register_module("mlp_proj", std::make_shared<Linear>(4 * kFeatures, kFeatures));
    last_norm_ = register_module("ln_f", std::make_shared<models::LayerNorm>(kFeatures));
  }
  at::Tensor forward(const at::Tensor& input) override {
    const at::Tensor places = torch::arange(input.size(1), at::kLong);
    at::Tensor x = run(*tokens_, input) + run(*positions_, places);
    x = x + run(*after_attention_, attend(run(*norm1_, x)));
    x = x + run(*narrowing_, at::gelu(run(*widening_, run(*norm2_, x))));
    return at::matmul(run(*last_norm_, x), tokens_->weight.t());
  }

 private:
  static constexpr std::int64_t kFeatures = 8;
  static constexpr std::int64_t kHeads = 2;

  at::Tensor attend(const at::Tensor& x) {
    const std::int64_t samples = x.size(0);
    const std::int64_t length = x.size(1);
    const auto by_head = [&](const at::Tensor& part) {
      return part.reshape({samples, length, kHeads, kFeatures / kHeads}).transpose(1, 2);
    };
    const std::vector<at::Tensor> parts = run(*attention_, x).split(kFeatures, 2);
    const at::Tensor scores =
        at::matmul(by_head(parts[0]), by_head(parts[1]).transpose(2, 3)) / std::sqrt(kFeatures / kHeads);
    const at::Tensor is_later = torch::ones({length, length}, at::kBool).triu(1);
    const at::Tensor weights = at::softmax(scores.masked_fill(is_later, -std::numeric_limits<double>::infinity()), 3);
    return at::matmul(weights, by_head(parts[2])).transpose(1, 2).reshape({samples, length, kFeatures});
  }

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
  TiedModel() {
    bias_ = register_parameter("bias", torch::zeros({6}));
    encoder_ = register_module("enc", std::make_shared<Linear>(6, 4, /*has_bias=*/false));
  }
  at::Tensor forward(const at::Tensor& input) override {
    return at::matmul(at::tanh(run(*encoder_, input)), encoder_->weight) + bias_;
  }

 private:
  at::Tensor bias_;
  std::shared_ptr<Linear> encoder_;
};

/// trunk 5->6, tanh, then the sum of the branches in use, each 6->3.
class BranchesModel : public SquaredErrorModel {
 public:
  BranchesModel() {
    trunk_ = register_module("trunk", std::make_shared<Linear>(5, 6));
    for (const char* name : {"a", "b", "c"}) {
      branches_[name] = register_module(name, std::make_shared<Linear>(6, 3));
    }
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

std::shared_ptr<models::Model> make(const std::string& name) {
  if (name == "mlp") return std::make_shared<MlpModel>();
  if (name == "conv") return std::make_shared<ConvModel>();
  if (name == "gpt") return std::make_shared<GptModel>();
  if (name == "tied") return std::make_shared<TiedModel>();
  if (name == "branches") return std::make_shared<BranchesModel>();
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
  const std::shared_ptr<models::Model> model = make(name);
  model->to(dtype);
  const Json& stored = stored_model(name);
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

data::Batch stored_batch(const std::string& model, int step, int rank, at::ScalarType dtype) {
  const Json& stored = stored_model(model);
  return {.input = tensor_of(stored.at("x")[step][rank], dtype),
          .target = tensor_of(stored.at("y")[step][rank], dtype)};
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
