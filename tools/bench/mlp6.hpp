// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/models/layers.hpp>
#include <lockstep/models/model.hpp>

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace lockstep::bench {

inline constexpr std::int64_t kMlpWidth = 1024;
inline constexpr int kMlpLayers = 6;
/// The seed that the peers take: the same layers drawn in the same order begin with the same bits.
inline constexpr std::uint64_t kPeerSeed = 1337;

/// 6 x (Linear(1024, 1024) + ReLU), trained to give nothing: the loss is the mean square of the output.
class Mlp6 : public models::Model {
 public:
  Mlp6() {
    for (int i = 0; i < kMlpLayers; ++i) {
      const auto layer = std::make_shared<models::Linear>(kMlpWidth, kMlpWidth);
      layers_.push_back(register_module("layer" + std::to_string(i), layer));
    }
  }

  at::Tensor forward(const at::Tensor& input) override {
    at::Tensor x = input;
    for (const auto& layer : layers_) x = at::relu(models::run(*layer, x));
    return x;
  }

  models::LossMap losses(const at::Tensor& output, const at::Tensor&) const override {
    return {{"loss", output.square().mean()}};
  }

 private:
  std::vector<std::shared_ptr<models::Linear>> layers_;
};

inline models::ModelRow mlp6_row() {
  return {
      .name = "mlp6",
      .help = "6 x (Linear(1024) + ReLU), the smallest honest work for data parallelism",
      .keys = {},
      .make = [](const Section&, const Task&) -> std::shared_ptr<models::Model> { return std::make_shared<Mlp6>(); }};
}

}  // namespace lockstep::bench
