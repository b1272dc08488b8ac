// SPDX-License-Identifier: BSD-3-Clause
// Parameters that are read-only outside of ParameterStore::write: what trains lawfully notices nothing. What does not
// is tested in tests/unit/parallel/write_guard_test.cpp, since it ends the job.
#include "parallel/store/parameter_store.hpp"
#include "parallel_test.hpp"

namespace lockstep::parallel {
namespace check_writes_test {

using CheckWritesTest = ParallelTest;

const std::vector<std::int64_t> kWidths = {30, 200, 3};

/// Puts other values into the parameters, and gives back those that were there. Collective.
std::vector<at::Tensor> swap(DistributedDataParallel& wrapper, const std::vector<at::Tensor>& values) {
  const std::vector<at::Tensor> before = values_of(wrapper.model());
  wrapper.store().write_whole([&] {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < values.size(); ++i) wrapper.store().parameter(i).tensor.copy_(values[i]);
  });
  return before;
}

/// Trains, evaluates on the average of the weights so far and trains on.
/// @return  the parameters, and the evaluation's loss
std::vector<at::Tensor> train(DistributedDataParallel& wrapper, int rank, double max_norm) {
  auto optimizer = make_optimizer(wrapper.parameters(), {{"name", "adamw"}, {"lr", "0.01"}},
                                  {.accumulation_steps = 2, .clip = {.max_norm = max_norm}});
  std::vector<at::Tensor> average = values_of(wrapper.model());
  double loss = 0;
  for (int i = 0; i < 8; ++i) {
    wrapper.train_step(batch_of(rank, i, kWidths), optimizer);
    if (i != 5) continue;
    for (std::size_t p = 0; p < average.size(); ++p) {
      average[p] = (average[p] + wrapper.store().parameter(p).tensor.detach()) / 2;
    }
    const std::vector<at::Tensor> trained = swap(wrapper, average);
    const batch::Batch batch = batch_of(0, 100, kWidths);
    const torch::NoGradGuard no_grad;
    loss = models::total_loss(wrapper.model().losses(wrapper.forward(batch.input()), batch.target())).item<double>();
    expect_equal(swap(wrapper, trained), average);
  }
  std::vector<at::Tensor> result = values_of(wrapper.model());
  result.push_back(torch::full({}, loss, at::kDouble));
  return result;
}

TEST_F(CheckWritesTest, LawfulTrainingHasTheSameBits) {
  for (const double max_norm : {0.0, 0.125}) {
    std::vector<at::Tensor> expected;
    for (const bool shares : {false, true}) {
      for (const bool checks : {false, true}) {
        SCOPED_TRACE(std::string(shares ? "shared" : "private") + (checks ? ", checked" : ", unchecked"));
        const auto wrapper =
            wrap(std::make_shared<Layers>(kWidths), {.shares_parameters = shares, .checks_writes = checks});
        const std::vector<at::Tensor> values = train(*wrapper, rank(), max_norm);
        if (expected.empty()) expected = values;
        expect_equal(values, expected);
      }
    }
    EXPECT_GT(expected.back().item<double>(), 0);
  }
}

TEST_F(CheckWritesTest, BroadcastsAndGivesTheParametersBack) {
  for (const bool shares : {false, true}) {
    auto model = std::make_shared<Layers>(kWidths);
    auto wrapper = wrap(model, {.shares_parameters = shares, .checks_writes = true});
    const std::vector<at::Tensor> before = values_of(*model);
    wrapper->broadcast_state(size() - 1);
    wrapper.reset();
    world_.barrier();
    const torch::NoGradGuard no_grad;
    if (!shares || rank() == 0) model->layers[0]->weight.add_(1);
    world_.barrier();
    EXPECT_TRUE(at::equal(model->layers[0]->weight, before[0] + 1));
    wrapper = wrap(model, {.shares_parameters = shares, .checks_writes = true});
    EXPECT_TRUE(at::equal(model->layers[0]->weight, before[0] + 1));
  }
}

}  // namespace check_writes_test
}  // namespace lockstep::parallel
