// SPDX-License-Identifier: BSD-3-Clause
// What the tests of this folder share: a model of linear layers, exact inputs, the gradients that one process would
// get, and a fixture that wraps models.
#pragma once

#include <lockstep/core/error.hpp>
#include <lockstep/models/layers.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/optimizer.hpp"

namespace lockstep::parallel {

using models::Linear;

/// Whole numbers of eighths in [-1, 1], in a pattern that `seed` shifts.
inline at::Tensor eighths(at::IntArrayRef shape, std::int64_t seed, at::ScalarType type = at::kDouble) {
  const std::int64_t count = c10::multiply_integers(shape);
  const at::Tensor numbers = (torch::arange(count, at::kLong) * 7 + seed * 5).remainder(17) - 8;
  return numbers.to(type).div_(8).view(shape);
}

/// Linear layers "l0", "l1", ... with tanh between them, float64, equal wherever it is made. Tests may run the layers
/// in any other order.
class Layers : public models::Model {
 public:
  explicit Layers(const std::vector<std::int64_t>& widths, bool has_bias = true) {
    for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
      auto layer = std::make_shared<Linear>(widths[i], widths[i + 1], has_bias);
      layers.push_back(register_module("l" + std::to_string(i), std::move(layer)));
    }
    to(at::kDouble);
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < parameters().size(); ++i) {
      parameters()[i].copy_(eighths(parameters()[i].sizes(), static_cast<std::int64_t>(i)) / 2);
    }
  }

  at::Tensor forward(const at::Tensor& input) override {
    at::Tensor values = run(0, input);
    for (std::size_t i = 1; i < layers.size(); ++i) values = run(i, at::tanh(values));
    return values;
  }
  at::Tensor run(std::size_t layer, const at::Tensor& input) { return models::run(*layers.at(layer), input); }

  models::LossMap losses(const at::Tensor& output, const at::Tensor& target) const override {
    return {{"loss", (output - target).square().mean()}};
  }

  std::vector<std::shared_ptr<Linear>> layers;
};

/// Inputs and targets of one rank's micro_batch, different for every rank and step.
/// @param widths  of the model: the first and the last count
inline batch::Batch batch_of(int rank, int step, const std::vector<std::int64_t>& widths, std::int64_t samples = 2,
                             at::ScalarType type = at::kDouble) {
  return {eighths({samples, widths.front()}, 3 * step + rank, type),
          eighths({samples, widths.back()}, 5 * step + 2 * rank + 1, type)};
}

inline at::Tensor loss_of(models::Model& model, const batch::Batch& batch) {
  return models::total_loss(model.losses(model.forward(batch.input()), batch.target()));
}

inline void drop_gradients(const models::Model& model) {
  for (const at::Tensor& parameter : model.parameters()) parameter.mutable_grad().reset();
}

/// Gradients of all parameters as they are now.
inline std::vector<at::Tensor> gradients_of(const models::Model& model) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : model.parameters()) {
    gradients.push_back(parameter.grad().defined() ? parameter.grad().detach().clone() : at::Tensor());
  }
  return gradients;
}

inline std::vector<at::Tensor> values_of(const models::Model& model) {
  std::vector<at::Tensor> values;
  for (const at::Tensor& parameter : model.parameters()) values.push_back(parameter.detach().clone());
  return values;
}

/// The gradients that one process gets that averages the gradients of all ranks, in rank order: undefined where no rank
/// has one.
/// @param alone  a model that no wrapper knows; its gradients are lost
/// @param loss   at::Tensor(int rank)
template <class Loss>
std::vector<at::Tensor> average_gradients(models::Model& alone, int ranks, const Loss& loss) {
  std::vector<at::Tensor> sums(alone.parameters().size());
  for (int rank = 0; rank < ranks; ++rank) {
    drop_gradients(alone);
    loss(rank).backward();
    const std::vector<at::Tensor> mine = gradients_of(alone);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      if (mine[i].defined()) sums[i] = sums[i].defined() ? sums[i] + mine[i] : mine[i];
    }
  }
  for (at::Tensor& sum : sums) {
    if (sum.defined()) sum.mul_(1.0 / ranks);
  }
  return sums;
}

/// @param tolerance  relative; 0 = the same bits
inline void expect_equal(const std::vector<at::Tensor>& actual, const std::vector<at::Tensor>& expected,
                         double tolerance = 0) {
  EXPECT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < std::min(actual.size(), expected.size()); ++i) {
    SCOPED_TRACE("parameter " + std::to_string(i));
    EXPECT_EQ(actual[i].defined(), expected[i].defined());
    if (!actual[i].defined() || !expected[i].defined()) continue;
    const bool is_equal = tolerance == 0 ? at::equal(actual[i], expected[i])
                                         : at::allclose(actual[i], expected[i], tolerance, tolerance / 100);
    EXPECT_TRUE(is_equal) << "off by up to " << (actual[i] - expected[i]).abs().max().item<double>();
  }
}

inline void expect_gradients(const models::Model& model, const std::vector<at::Tensor>& expected,
                             double tolerance = 0) {
  expect_equal(gradients_of(model), expected, tolerance);
}

using testing::make_optimizer;
using DdpSettings = testing::OptimSettings;

class ParallelTest : public ::testing::Test {
 protected:
  ParallelTest() : collectives_(make_collectives()) {}

  int rank() const { return world_.rank(); }
  int size() const { return world_.size(); }
  bool is_last() const { return rank() + 1 == size(); }

  std::unique_ptr<mpi::Collectives> make_collectives(const std::string& backend = "auto") const {
    return mpi::make_collectives(world_, {.backend = backend, .timeout_s = 60});
  }

  std::unique_ptr<DistributedDataParallel> wrap(std::shared_ptr<models::Model> model, const DdpOptions& options = {}) {
    return std::make_unique<DistributedDataParallel>(std::move(model), world_, *collectives_, options);
  }

  /// Whether all ranks hold the same bytes. Collective.
  bool is_same_everywhere(const at::Tensor& tensor) const {
    const at::Tensor mine = tensor.detach().contiguous();
    const auto all = world_.all_gather(std::string(static_cast<const char*>(mine.const_data_ptr()), mine.nbytes()));
    return std::all_of(all.begin(), all.end(), [&](const std::string& other) { return other == all[0]; });
  }

  /// The text of the ConfigError that every rank is expected to throw; "" if this one threw nothing.
  template <class Body>
  std::string refusal(const Body& body) const {
    try {
      body();
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }

  mpi::Communicator world_ = mpi::Communicator::world();
  std::unique_ptr<mpi::Collectives> collectives_;
};

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace lockstep::parallel
