// SPDX-License-Identifier: BSD-3-Clause
// What sharded training does on GPUs, done on the CPU: updates of slices as tensors, gradients and parameters that
// travel while others compute, and state in the host's memory. tests/gpu does the same on GPUs.
#include <cmath>
#include <limits>

#include "optim/averages/model_average.hpp"
#include "parallel/store/parameter_store.hpp"
#include "parallel_test.hpp"
#include "support/stand_in_gpu.hpp"

namespace lockstep::parallel {
namespace sharded_tensors_test {

const std::vector<std::int64_t> kWidths = {70, 90, 64, 33};  // several pieces, which ranks cut
constexpr int kSteps = 5;
constexpr double kInfinite = std::numeric_limits<double>::infinity();

struct Training {
  DdpSettings optim;
  optim::OptimWrapper::WrapperOptions wrapping = {};
};

const std::vector<Training>& trainings() {
  static const std::vector<Training> all = {
      {{{"name", "sgd"}, {"lr", "0.05"}, {"momentum", "0.9"}}},
      {{{"name", "adamw"}, {"lr", "0.01"}, {"weight_decay", "0.1"}}, {.clip = {.max_norm = 0.5}}},
      {{{"name", "adam"}, {"lr", "0.01"}},
       {.accumulation_steps = 3, .clip = {.max_norm = 0.5, .norm_type = kInfinite}}},
      {{{"name", "adamw"}, {"lr", "0.01"}, {"no_decay", "norms_biases"}},
       {.accumulation_steps = 2, .clip = {.max_norm = 0.25, .max_value = 0.01, .is_by_group = true}}},
      {{{"name", "lars"}, {"lr", "0.1"}, {"momentum", "0.75"}, {"weight_decay", "0.01"}}, {.clip = {.max_norm = 0.5}}},
      {{{"name", "larc"}, {"lr", "0.1"}, {"momentum", "0.75"}, {"weight_decay", "0.01"}}},
      {{{"name", "lamb"}, {"lr", "0.01"}, {"weight_decay", "0.1"}}, {.clip = {.max_norm = 0.5}}},
      {{{"name", "muon"}, {"lr", "0.01"}, {"momentum", "0.95"}, {"ns_bf16", "false"}}, {.clip = {.max_norm = 0.5}}},
      {{{"name", "adafactor"}, {"lr", "0.01"}}, {.accumulation_steps = 3}},
  };
  return all;
}

/// The values that are left of a training.
struct Outcome {
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> average;
  std::vector<double> norms;
  std::vector<bool> were_updated;
  std::int64_t updates = 0;  // updates of the first parameter
};

class ShardedTensorsTest : public ParallelTest {
 protected:
  ShardedTensorsTest() {
    testing::reset_stand_in();
    testing::stand_in().has_all_memory = true;
    nccl_ = mpi::make_collectives(world_, {.backend = "nccl", .timeout_s = 60, .gpu = testing::stand_in_gpu()});
  }

  /// @param spoilt  a step in which the last rank's gradients are not finite
  Outcome train(mpi::Collectives& collectives, const Sharding& sharding, const Training& training, int spoilt = -1) {
    const auto model = std::make_shared<Layers>(kWidths);
    DdpOptions options;
    options.sharding = sharding;
    options.hosts = size() % 2 == 0 ? 2 : size();
    const bool by_tensors = sharding.is_as_on_gpu && !sharding.offloads;
    const optim::Rule& rule = optim::find_rule(training.optim.at("name"));
    options.sharding.owns_whole_parameters = by_tensors ? rule.is_whole_on_gpu() : rule.is_whole();
    if (sharding.stage == 3) options.sharding.blocks = {"l0", "l2"};
    options.reducer.limits = {.bucket_bytes = {40000}, .last_bucket_bytes = 0};
    DistributedDataParallel wrapper(model, world_, collectives, options);
    ParameterStore& store = wrapper.store();
    optim::OptimWrapper optimizer = make_optimizer(store, training.optim, training.wrapping);
    optim::ModelAverage average(optim::builtin_averages().front(), {.decay = 0.5}, store,
                                [] { return std::vector<optim::ModelAverage::NamedBuffer>(); });
    Outcome outcome;
    for (int step = 0; step < kSteps; ++step) {
      for (std::int64_t micro_batch = 0; micro_batch < training.wrapping.accumulation_steps; ++micro_batch) {
        batch::Batch batch = batch_of(rank(), 10 * step + static_cast<int>(micro_batch), kWidths);
        if (step == spoilt && is_last()) batch.input()[0][0] = kInfinite;
        const StepResult result = wrapper.train_step(batch, optimizer);
        if (micro_batch + 1 < training.wrapping.accumulation_steps) continue;
        if (result.update.grad_norm) outcome.norms.push_back(*result.update.grad_norm);
        outcome.were_updated.push_back(result.update.updated);
      }
      average.update();
    }
    store.read_whole([&] { outcome.parameters = values_of(*model); });
    average.swap();
    store.read_whole([&] { outcome.average = values_of(*model); });
    outcome.updates = optimizer.optimizer().steps(0)[0];
    return outcome;
  }

  void expect_same(const Outcome& actual, const Outcome& expected, double tolerance = 0) {
    expect_equal(actual.parameters, expected.parameters, tolerance);
    expect_equal(actual.average, expected.average, tolerance);
    EXPECT_EQ(actual.were_updated, expected.were_updated);
    EXPECT_EQ(actual.updates, expected.updates);
    ASSERT_EQ(actual.norms.size(), expected.norms.size());
    for (std::size_t i = 0; i < actual.norms.size(); ++i) {
      EXPECT_EQ(std::isfinite(actual.norms[i]), std::isfinite(expected.norms[i]));
      if (!std::isfinite(expected.norms[i])) continue;
      EXPECT_NEAR(actual.norms[i], expected.norms[i], 1e-12 * expected.norms[i]);
    }
  }

  /// Everything that a GPU would do, at every stage, beside replicas and beside slices on the CPU.
  void expect_agreement(const Training& training, int spoilt = -1) {
    const Outcome replicas = train(*collectives_, {}, training, spoilt);
    for (int stage = 1; stage <= 3; ++stage) {
      SCOPED_TRACE("stage " + std::to_string(stage));
      const Outcome slices = train(*collectives_, {.stage = stage}, training, spoilt);
      expect_same(slices, replicas, 1e-9);
      for (mpi::Collectives* const collectives : {collectives_.get(), nccl_.get()}) {
        SCOPED_TRACE(std::string(collectives->name()));
        for (const bool prefetches : {true, false}) {
          const Sharding by_tensors = {.stage = stage, .prefetches = prefetches, .is_as_on_gpu = true};
          expect_same(train(*collectives, by_tensors, training, spoilt), replicas, 1e-9);
        }
        const Sharding offloaded = {.stage = stage, .offloads = true, .is_as_on_gpu = true};
        const Outcome in_host_memory = train(*collectives, offloaded, training, spoilt);
        // The loops of the CPU, on the same sums: NCCL's stand-in adds in rank order, too.
        expect_equal(in_host_memory.parameters, slices.parameters);
        expect_same(in_host_memory, slices, 1e-12);
      }
      const Sharding on_hosts = {.stage = stage, .offloads = stage == 2, .is_within_hosts = true, .is_as_on_gpu = true};
      expect_same(train(*nccl_, on_hosts, training, spoilt), replicas, 1e-9);
    }
    EXPECT_EQ(testing::stand_in_aborts(), 0);
  }

  std::unique_ptr<mpi::Collectives> nccl_;
};

TEST_F(ShardedTensorsTest, EveryStageTrainsLikeReplicas) {
  for (const Training& training : trainings()) {
    SCOPED_TRACE(training.optim.at("name"));
    expect_agreement(training);
  }
}

// One rank's overflow skips the step on all.
TEST_F(ShardedTensorsTest, AllRanksSkipWhatOneCannotUse) {
  Training training = trainings()[1];
  training.wrapping.scaler = optim::GradScalerOptions{};
  expect_agreement(training, 2);
  EXPECT_EQ(train(*nccl_, {.stage = 2, .is_as_on_gpu = true}, training, 2).updates, kSteps - 1);
  training.wrapping.clip = {};
  expect_agreement(training, 2);
  Training clipped = trainings()[1];
  expect_agreement(clipped, 2);
}

// The key changes nothing on the CPU.
TEST_F(ShardedTensorsTest, OffloadingHasNoMeaningOnTheCpu) {
  for (int stage = 1; stage <= 3; ++stage) {
    const Outcome plain = train(*collectives_, {.stage = stage}, trainings()[1]);
    const Outcome offloaded = train(*collectives_, {.stage = stage, .offloads = true}, trainings()[1]);
    expect_equal(offloaded.parameters, plain.parameters);
  }
}

}  // namespace sharded_tensors_test
}  // namespace lockstep::parallel
