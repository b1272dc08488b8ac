// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/models/layers.hpp>

#include <torch/types.h>

#include <numeric>

#include "models/rows.hpp"

namespace lockstep::models {

namespace {

class Mlp : public Model {
 public:
  Mlp(const Section& model, const Task& task) {
    std::int64_t features =
        std::accumulate(task.sample_shape.begin(), task.sample_shape.end(), std::int64_t{1}, std::multiplies<>());
    for (const std::int64_t width : model.integers("hidden")) {
      hidden_.push_back(
          register_module("hidden" + std::to_string(hidden_.size()), std::make_shared<Linear>(features, width)));
      features = width;
    }
    dropout_ = register_module("dropout", std::make_shared<Dropout>(model.real("dropout")));
    head_ = register_module("head", std::make_shared<Linear>(features, task.classes));
  }

  at::Tensor forward(const at::Tensor& input) override {
    at::Tensor x = input.flatten(1);
    for (const auto& layer : hidden_) x = run(*dropout_, at::relu(run(*layer, x)));
    return run(*head_, x);
  }

 private:
  std::vector<std::shared_ptr<Linear>> hidden_;
  std::shared_ptr<Dropout> dropout_;
  std::shared_ptr<Linear> head_;
};

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
    classifier_ = register_module("classifier", std::make_shared<Mlp>(model, features));
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

void require_images(const char* name, const Task& task, std::size_t dims) {
  if (task.is_text)
    throw ConfigError(std::string("model.name: ") + name + " needs images, but data.name provides text");
  if (dims != 0 && task.sample_shape.size() != dims) {
    throw ConfigError(std::string("model.name: ") + name + " needs samples of shape [channels, height, width]");
  }
}

std::shared_ptr<Model> make_mlp(const Section& model, const Task& task) {
  require_images("mlp", task, 0);
  return std::make_shared<Mlp>(model, task);
}

std::shared_ptr<Model> make_cnn(const Section& model, const Task& task) {
  require_images("cnn", task, 3);
  return std::make_shared<Cnn>(model, task);
}

}  // namespace lockstep::models
