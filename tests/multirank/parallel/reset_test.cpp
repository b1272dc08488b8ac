// SPDX-License-Identifier: BSD-3-Clause
// Going on after an exception.
#include "parallel/store/reducer.hpp"
#include "parallel_test.hpp"

namespace lockstep::parallel {
namespace reset_test {

using ResetTest = ParallelTest;

const std::vector<std::int64_t> kWidths = {3, 4, 2};

/// Makes the next backward through it throw.
struct Failing {
  explicit Failing(const at::Tensor& tensor)
      : tensor_(tensor),
        handle_(tensor.register_hook([](const at::Tensor&) -> at::Tensor { throw DataError("stop"); })) {}
  ~Failing() { tensor_.remove_hook(handle_); }

  at::Tensor tensor_;
  unsigned handle_;
};

// Holds in the first step, in the second, which has new buckets, and in a later one; ranks may have come to different
// places.
TEST_F(ResetTest, AWrapperContinuesAfterAnExceptionInBackward) {
  for (const ReducerOptions& options :
       {ReducerOptions{}, ReducerOptions{.finds_unused = true}, ReducerOptions{.has_static_graph = true}}) {
    for (const bool shares : {false, true}) {
      auto model = std::make_shared<Layers>(kWidths);
      auto expected = std::make_shared<Layers>(kWidths);
      ReducerOptions small = options;
      small.limits = {.bucket_bytes = {1}, .last_bucket_bytes = 0};
      const auto wrapper = wrap(model, {.reducer = small, .shares_parameters = shares});
      const auto reference = wrap(expected);
      const DdpSettings settings = {{"name", "sgd"}, {"momentum", "0.5"}};
      auto optimizer = make_optimizer(wrapper->parameters(), settings);
      auto reference_optimizer = make_optimizer(reference->parameters(), settings);
      for (int step = 0; step < 4; ++step) {
        const batch::Batch batch = batch_of(rank(), step, kWidths);
        if (step != 2) {
          // A step fails that had no synchronized forward before it, one in its midst, one at its beginning.
          const Failing failing(model->layers[(step + rank()) % 2]->weight);
          EXPECT_ANY_THROW(wrapper->train_step(batch, optimizer));
        } else {
          EXPECT_ANY_THROW(wrapper->forward(torch::zeros({2, 99}, at::kDouble)));
        }
        wrapper->reset_state();
        optimizer.reset();
        wrapper->train_step(batch, optimizer);
        reference->train_step(batch, reference_optimizer);
        expect_equal(values_of(*model), values_of(*expected));
      }
      EXPECT_EQ(report_of(wrapper->reducer()).is_rebuilt, !options.finds_unused && size() > 1);
    }
  }
}

}  // namespace reset_test
}  // namespace lockstep::parallel
