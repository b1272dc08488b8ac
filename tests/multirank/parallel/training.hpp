// SPDX-License-Identifier: BSD-3-Clause
// What the tests of hooks, joins and several wrappers share beyond parallel_test.hpp.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "parallel_test.hpp"

namespace lockstep::parallel {

/// A model whose loss is the mean squared distance.
class SquaredModel : public models::Model {
 public:
  models::LossMap losses(const at::Tensor& output, const at::Tensor& target) const override {
    return {{"loss", (output - target).square().mean()}};
  }
};

/// Layers in -> width -> out.
class TwoLayers : public Layers {
 public:
  explicit TwoLayers(std::int64_t in = 3, std::int64_t width = 4, std::int64_t out = 2)
      : Layers({in, width, out}), first(layers[0]), second(layers[1]) {}

  std::shared_ptr<Linear> first;
  std::shared_ptr<Linear> second;
};

/// The samples that a rank brings into a step of TwoLayers.
inline batch::Batch samples_of(int rank, int step, std::int64_t samples = 2, std::int64_t in = 3,
                               std::int64_t out = 2) {
  return batch_of(rank, step, {in, out}, samples);
}

class TrainingTest : public ParallelTest {
 protected:
  using ParallelTest::is_same_everywhere;

  /// Parameters and buffers. Collective.
  bool is_same_everywhere(const models::Model& model) const {
    bool is_same = true;
    for (const auto& parameter : model.parameters()) is_same = is_same_everywhere(parameter) && is_same;
    for (const auto& buffer : model.buffers()) is_same = is_same_everywhere(buffer) && is_same;
    return is_same;
  }
};

inline optim::OptimWrapper optimizer_of(DistributedDataParallel& wrapper, const std::string& name = "sgd",
                                        double lr = 0.125, std::int64_t accumulation_steps = 1) {
  return make_optimizer(wrapper.parameters(), {{"name", name}, {"lr", std::to_string(lr)}},
                        {.accumulation_steps = accumulation_steps});
}

/// Backward of one batch, without an update.
inline void backward(DistributedDataParallel& wrapper, const batch::Batch& batch) {
  models::total_loss(wrapper.model().losses(wrapper.forward(batch.input()), batch.target())).backward();
}

/// Up to the rounding of float64 sums in another order.
inline void expect_close(const std::vector<at::Tensor>& actual, const std::vector<at::Tensor>& expected) {
  expect_equal(actual, expected, 1e-11);
}

/// The text of the error of class E that `work` throws; empty if it throws nothing.
template <class E>
std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

}  // namespace lockstep::parallel
