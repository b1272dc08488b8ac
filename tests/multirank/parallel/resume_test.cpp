// SPDX-License-Identifier: BSD-3-Clause
// A run that was saved and continues is the run without a stop, to the last bit.
#include <cstring>

#include "parallel/store/parameter_store.hpp"
#include "parallel_test.hpp"

namespace lockstep::parallel {
namespace resume_test {

using ResumeTest = ParallelTest;

const std::vector<std::int64_t> kWidths = {3, 30, 2};
const DdpSettings kAdam = {{"name", "adamw"}, {"lr", "0.0625"}};

/// A model with all that its training needs.
struct Training {
  std::shared_ptr<Layers> model = std::make_shared<Layers>(kWidths);
  std::unique_ptr<DistributedDataParallel> wrapper;
  std::unique_ptr<optim::OptimWrapper> optimizer;

  void train(int rank, int first, int count) {
    for (int step = first; step < first + count; ++step) wrapper->train_step(batch_of(rank, step, kWidths), *optimizer);
  }
};

/// The values that a checkpoint holds.
struct Saved {
  std::vector<at::Tensor> parameters;
  std::vector<std::vector<std::byte>> state;  // state by slot
  std::vector<std::int64_t> steps;
};

Saved save(Training& training) {
  Saved saved{.parameters = values_of(*training.model), .state = {}, .steps = {}};
  optim::Optimizer& optimizer = training.optimizer->optimizer();
  for (std::size_t slot = 0; slot < optimizer.state_names().size(); ++slot) {
    const auto bytes = optimizer.state(0, slot);
    saved.state.emplace_back(bytes.begin(), bytes.end());
  }
  const auto steps = optimizer.steps(0);
  saved.steps.assign(steps.begin(), steps.end());
  return saved;
}

void load(Training& training, const Saved& saved) {
  optim::Optimizer& optimizer = training.optimizer->optimizer();
  training.wrapper->store().write_whole([&] {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < saved.parameters.size(); ++i)
      training.model->parameters()[i].copy_(saved.parameters[i]);
    for (std::size_t slot = 0; slot < saved.state.size(); ++slot) {
      std::memcpy(optimizer.state(0, slot).data(), saved.state[slot].data(), saved.state[slot].size());
    }
  });
  std::copy(saved.steps.begin(), saved.steps.end(), optimizer.steps(0).begin());
}

// Each rank fills the part that it owns, and sees the parts of the others as soon as the optimizer exists.
TEST_F(ResumeTest, StatesBeginWithTheValueOfTheirRule) {
  for (const bool shares : {false, true}) {
    SCOPED_TRACE(shares ? "shared" : "private");
    const auto wrapper = wrap(std::make_shared<Layers>(kWidths), {.shares_parameters = shares});
    auto wrapped = make_optimizer(wrapper->parameters(), {{"name", "adagrad"}, {"initial_accumulator_value", "0.25"}});
    const auto& segments = wrapper->parameters().blocks()[0].segments;
    for (std::size_t s = 0; s < segments.size(); ++s) {
      const auto state = wrapped.optimizer().state_of(0, s, 0);
      const auto* const first = reinterpret_cast<const double*>(state->values);
      const std::vector<double> sums(first, first + segments[s].count);
      EXPECT_EQ(sums, std::vector<double>(sums.size(), 0.25)) << segments[s].name;
    }
  }
}

// Cases 22 and 74: a resumed run begins with the buckets of a first step again, which changes no sum.
TEST_F(ResumeTest, GivesTheBitsOfARunWithoutAStop) {
  for (const bool shares : {false, true}) {
    for (const double clip_norm : {0.0, 0.25}) {
      const auto start = [&] {
        Training training;
        training.wrapper = wrap(training.model, {.reducer = {.limits = {.bucket_bytes = {64}, .last_bucket_bytes = 0}},
                                                 .shares_parameters = shares});
        training.optimizer = std::make_unique<optim::OptimWrapper>(make_optimizer(
            training.wrapper->parameters(), kAdam, {.accumulation_steps = 1, .clip = {.max_norm = clip_norm}}));
        return training;
      };
      Training uninterrupted = start();
      uninterrupted.train(rank(), 0, 3);
      const Saved saved = save(uninterrupted);
      uninterrupted.train(rank(), 3, 3);
      const Saved expected = save(uninterrupted);

      const auto go_on = [&](Training& training) {
        load(training, saved);
        expect_equal(values_of(*training.model), saved.parameters);
        training.train(rank(), 3, 3);
        const Saved reached = save(training);
        expect_equal(reached.parameters, expected.parameters);
        EXPECT_EQ(reached.steps, expected.steps);
      };
      EXPECT_FALSE(at::equal(expected.parameters[0], saved.parameters[0]));
      go_on(uninterrupted);  // the same wrapper
      Training fresh = start();
      fresh.wrapper->store().write_whole([&] {
        const torch::NoGradGuard no_grad;
        for (auto& parameter : fresh.model->parameters()) parameter.zero_();
      });
      go_on(fresh);
    }
  }
}

}  // namespace resume_test
}  // namespace lockstep::parallel
