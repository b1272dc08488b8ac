// SPDX-License-Identifier: BSD-3-Clause
// Training by several ranks is training by one process on all of their samples.
#include "parallel/store/reducer.hpp"
#include "parallel_test.hpp"

namespace lockstep::parallel {
namespace single_process_test {

using SingleProcessTest = ParallelTest;

const std::vector<std::int64_t> kWidths = {2, 10, 50, 4};

struct Variant {
  at::ScalarType dtype;
  BucketLimits limits;
  double tolerance;
};

/// All ranks' samples in the order of this step.
batch::Batch global_batch(int step, int world_size, at::ScalarType dtype) {
  const batch::Batch batch = batch_of(0, 0, kWidths, 2 * world_size, dtype);
  const at::Tensor order = (torch::arange(2 * world_size, at::kLong) + 1337 + step).remainder(2 * world_size);
  return {batch.input().index_select(0, order), batch.target().index_select(0, order)};
}

batch::Batch part_of(const batch::Batch& batch, int rank) {
  return {batch.input().narrow(0, 2 * rank, 2), batch.target().narrow(0, 2 * rank, 2)};
}

void descend(const models::Model& model) {
  const torch::NoGradGuard no_grad;
  for (auto& parameter : model.parameters()) parameter.sub_(parameter.grad(), 0.0625);
}

// Cases 23 and 24: counts of ranks that are no powers of two are among those of this program. Gradients always are
// views of the buckets.
TEST_F(SingleProcessTest, OfAllSamplesGivesTheSameParameters) {
  // Sums over samples are formed in another order: a few ulp.
  const std::vector<Variant> variants = {{at::kDouble, {.bucket_bytes = {1048}, .last_bucket_bytes = 0}, 1e-13},
                                         {at::kDouble, {}, 1e-13},
                                         {at::kFloat, {.bucket_bytes = {524}, .last_bucket_bytes = 0}, 1e-5}};
  for (const Variant& variant : variants) {
    auto model = std::make_shared<Layers>(kWidths, /*has_bias=*/false);
    Layers alone(kWidths, /*has_bias=*/false);
    model->to(variant.dtype);
    alone.to(variant.dtype);
    const auto wrapper = wrap(model, {.reducer = {.limits = variant.limits}});
    for (int step = 0; step < 4; ++step) {
      const batch::Batch batch = global_batch(step, size(), variant.dtype);
      const batch::Batch mine = part_of(batch, rank());
      drop_gradients(*model);
      drop_gradients(alone);
      models::total_loss(model->losses(wrapper->forward(mine.input()), mine.target())).backward();
      loss_of(alone, batch).backward();
      descend(*model);
      descend(alone);
      expect_equal(values_of(*model), values_of(alone), variant.tolerance);
      EXPECT_TRUE(is_same_everywhere(model->layers[1]->weight));
    }
    if (variant.limits.last_bucket_bytes == 0 && size() > 1) {
      EXPECT_EQ(report_of(wrapper->reducer()).buckets.size(), 3U);
    }
  }
}

}  // namespace single_process_test
}  // namespace lockstep::parallel
