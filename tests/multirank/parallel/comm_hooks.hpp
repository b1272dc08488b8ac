// SPDX-License-Identifier: BSD-3-Clause
// Models and a fixture for tests of communication hooks.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "parallel/comm_hooks/power_sgd.hpp"
#include "training.hpp"

namespace lockstep::parallel::comm_hooks {

using MakeHook = std::function<ChosenHook(mpi::Collectives&)>;

/// One parameter, of `rows` x `columns`, whose gradient is the input: the loss is the sum of parameter * input.
class Product : public models::Model {
 public:
  Product(std::int64_t rows, std::int64_t columns, at::ScalarType type = at::kFloat) {
    factor = register_parameter("factor", torch::ones({rows, columns}, type));
  }
  at::Tensor forward(const at::Tensor& input) override { return (factor * input).sum(); }

  at::Tensor factor;
};

/// One parameter of ones(2, 2), to which a number is added.
class FourOnes : public models::Model {
 public:
  FourOnes() { p = register_parameter("p", torch::ones({2, 2})); }
  at::Tensor forward(const at::Tensor& input) override { return (p + input).mean(); }

  at::Tensor p;
};

class CommHooksTest : public TrainingTest {
 protected:
  static MakeHook make(CommHook (*hook)(mpi::Collectives&)) {
    return [hook](mpi::Collectives& all) { return ChosenHook{.hook = hook(all)}; };
  }
  static MakeHook make(const PowerSgdOptions& options) {
    return [options](mpi::Collectives& all) { return power_sgd_hook(all, options); };
  }

  /// The gradients of one parameter in several steps, where each is its rank's input.
  at::Tensor average(const at::Tensor& mine, const MakeHook& hook) {
    auto model = std::make_shared<Product>(mine.size(0), mine.size(1), mine.scalar_type());
    auto wrapper = wrap(model, {.comm_hook = hook});
    wrapper->forward(mine).backward();
    return model->factor.grad().clone();
  }

  /// The gradient that every element of the gradient of FourOnes is in some steps with a hook.
  std::vector<float> task_gradients(const MakeHook& hook, bool is_static) {
    auto model = std::make_shared<FourOnes>();
    auto wrapper = wrap(model, {.reducer = {.has_static_graph = is_static}, .comm_hook = hook});
    std::vector<float> values;
    for (int step = 0; step < 4; ++step) {
      wrapper->parameters().drop_gradients();
      wrapper->forward(torch::full({}, 8.0F + static_cast<float>(rank()))).backward();
      const at::Tensor gradient = model->p.grad().view({-1});
      for (std::int64_t i = 0; i < 4; ++i) values.push_back(gradient[i].item<float>());
    }
    return values;
  }
};

}  // namespace lockstep::parallel::comm_hooks
