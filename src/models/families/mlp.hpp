// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/models/layers.hpp>
#include <lockstep/models/model.hpp>

#include <ATen/ops/relu.h>

#include <memory>
#include <string>
#include <vector>

namespace lockstep::models {

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

}  // namespace lockstep::models
