// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/models/layers.hpp>

#include <torch/types.h>

#include <algorithm>

#include "models/families/mlp.hpp"
#include "models/families/rows.hpp"

namespace lockstep::models {

namespace {

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
