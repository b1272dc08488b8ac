// SPDX-License-Identifier: BSD-3-Clause
// Training on GPUs beside training on CPUs, which other tests compare with PyTorch.
#include <lockstep/core/error.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <algorithm>

#include "batch/byte_values.hpp"
#include "checkpoints/store/store.hpp"
#include "engine/evaluation/evaluation.hpp"
#include "engine/resume/run_state.hpp"
#include "engine/state/stored_model.hpp"
#include "fake_functions.hpp"
#include "gpu_test.hpp"
#include "models/layers/generators.hpp"
#include "multirank/engine/changed_digits.hpp"
#include "multirank/engine/small_run.hpp"
#include "multirank/parallel/parallel_test.hpp"
#include "parallel/store/parameter_store.hpp"
#include "parallel/store/reducer.hpp"
#include "support/sampling.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::engine {
namespace training_test {

using parallel::batch_of;
using parallel::Layers;

const std::vector<std::int64_t> kWidths = {16, 32, 24, 8};

class GpuTrainingTest : public GpuTest {
 protected:
  std::unique_ptr<mpi::Collectives> collectives(bool is_on_gpu) const {
    return mpi::make_collectives(world_, {.timeout_s = 60, .gpu = is_on_gpu ? device_->gpu() : nullptr});
  }

  /// Gradients of the third step (buckets were rebuilt by then), on the CPU.
  std::vector<at::Tensor> gradients(bool is_on_gpu, const parallel::DdpOptions& options) const {
    const auto all = collectives(is_on_gpu);
    const auto model = std::make_shared<Layers>(kWidths);
    if (is_on_gpu) model->to(device_->torch());
    parallel::DistributedDataParallel wrapper(model, world_, *all, options);
    for (int step = 0; step < 3; ++step) {
      parallel::drop_gradients(*model);
      const batch::Batch batch = batch_of(world_.rank(), step, kWidths);
      const at::Tensor output = wrapper.forward(batch.input());
      models::total_loss(model->losses(output, batch.target().to(output.device()))).backward();
      wrapper.reducer().finish();
    }
    std::vector<at::Tensor> result = parallel::gradients_of(*model);
    for (at::Tensor& gradient : result) gradient = gradient.cpu();
    return result;
  }

  Settings settings(const std::string& device, Settings more) const {
    more.insert(more.begin(), {"run.tf32", "none"});
    more.insert(more.end(), {{"run.device", device}, {"data.workers", "0"}, {"run.threads", "1"}});
    return more;
  }

  std::vector<at::Tensor> parameters_of(WrappedModel& model) const {
    std::vector<at::Tensor> values;
    for (const at::Tensor& parameter : model.wrapper->model().parameters()) {
      values.push_back(parameter.detach().cpu().clone());
    }
    return values;
  }
};

// float64, so that what differs is the order of additions alone.
TEST_F(GpuTrainingTest, GradientsAreThoseOfTheCpu) {
  parallel::DdpOptions several;
  several.reducer.limits = {.bucket_bytes = {2000}, .last_bucket_bytes = 500};
  parallel::DdpOptions searching = several;
  searching.reducer.finds_unused = true;
  parallel::DdpOptions is_static = several;
  is_static.reducer.has_static_graph = true;
  for (const parallel::DdpOptions& options : {parallel::DdpOptions{}, several, searching, is_static}) {
    parallel::expect_equal(gradients(true, options), gradients(false, options), 1e-12);
  }
}

TEST_F(GpuTrainingTest, LossCurvesAreThoseOfTheCpu) {
  std::uint64_t number = 0;
  for (const optim::Rule& rule : optim::builtin_rules()) {
    const std::string& optimizer = rule.name;
    const std::string decay = optimizer == "rprop" || rule.uses_closure() ? "0" : "0.01";
    const std::string no_decay = rule.uses_closure() ? "none" : "norms_biases";
    const std::size_t steps = rule.uses_closure() ? 3 : 30;  // each of a closure has up to 25 forwards and backwards
    for (const bool clips : {false, true}) {
      if (rule.uses_closure() && clips) continue;  // refused
      if (testing::is_sample() && !testing::is_sampled(++number, 5)) continue;
      Settings common = {{"model.name", "mlp"},       {"train.max_steps", std::to_string(steps)},
                         {"train.precision", "fp64"}, {"optim.name", optimizer},
                         {"optim.lr", "0.01"},        {"optim.weight_decay", decay},
                         {"train.micro_batch", "8"},  {"optim.no_decay", no_decay}};
      if (clips) common.emplace_back("train.clip_norm", "0.5");
      if (optimizer == "muon") common.emplace_back("optim.ns_bf16", "false");  // devices round bfloat16 differently
      SmallRun on_gpu(world_, settings("cuda", common));
      SmallRun on_cpu(world_, settings("cpu", common));
      EXPECT_EQ(on_gpu.resources.device, device_->torch());
      on_gpu.trainer.train();
      on_cpu.trainer.train();
      EXPECT_EQ(on_gpu.losses.size(), steps);
      for (std::size_t i = 0; i < on_gpu.losses.size(); ++i) {
        EXPECT_NEAR(on_gpu.losses[i], on_cpu.losses[i], 1e-7 * std::abs(on_cpu.losses[i])) << optimizer << clips << i;
      }
      parallel::expect_equal(parameters_of(on_gpu.model), parameters_of(on_cpu.model), 1e-6);
    }
  }
}

// The built-in default: generated digits and the cnn, with dropout besides.
TEST_F(GpuTrainingTest, DigitsAreLearnedAsWellAsOnTheCpu) {
  const Settings common = {{"train.max_epochs", "2"}, {"data.train_size", "7200"}, {"model.dropout", "0.1"}};
  SmallRun on_gpu(world_, settings("cuda", common));
  SmallRun on_cpu(world_, settings("cpu", common));
  on_gpu.trainer.train();
  on_cpu.trainer.train();
  const double accuracy_gpu = evaluate(on_gpu, *on_gpu.splits.val, 200).accuracy();
  const double accuracy_cpu = evaluate(on_cpu, *on_cpu.splits.val, 200).accuracy();
  if (world_.is_root()) std::printf("accuracy: GPU %.4f, CPU %.4f\n", accuracy_gpu, accuracy_cpu);
  EXPECT_GT(accuracy_gpu, accuracy_cpu - 0.02);
  EXPECT_GT(accuracy_gpu, 0.9);
}

// The bytes of images are copied to the GPU, where a table gives each the same number as on the CPU.
TEST_F(GpuTrainingTest, BytesOfImagesTrainWithTheBitsOfFloats) {
  const Settings common = {{"data.name", "synthetic"},
                           {"data.shape", "3,40,40"},
                           {"data.size", "60"},
                           {"data.classes", "4"},
                           {"data.transform", "random_resized_crop,size=32"},
                           {"data.transform", "normalize"},
                           {"data.val_transform", "resize,size=32,32"},
                           {"data.val_transform", "normalize"},
                           {"model.name", "resnet18"},
                           {"model.width", "8"},
                           {"train.max_steps", "1"},
                           {"run.deterministic", "true"},
                           {"train.global_batch_size", "12"}};
  for (const char* const model : {"resnet18", "cnn"}) {
    const Settings of_model = settings("cuda", with(common, {{"model.name", model}}));
    SmallRun bytes(world_, with(of_model, {{"data.output", "uint8"}}));
    SmallRun automatic(world_, of_model);
    SmallRun floats(world_, with(of_model, {{"data.output", "float"}}));
    for (SmallRun* const run : {&bytes, &automatic, &floats}) run->trainer.train();
    EXPECT_EQ(bytes.losses, floats.losses) << model;
    EXPECT_EQ(automatic.losses, floats.losses) << model;
    parallel::expect_equal(parameters_of(bytes.model), parameters_of(floats.model));
  }
}

// The fake GPU alone counts. The host would also wait for each copy.
TEST_F(GpuTrainingTest, TheTableOfBytesIsCopiedOnce) {
  if (!fake_gpu::is_here()) GTEST_SKIP() << "this GPU does not count copies";
  const at::Tensor table = torch::arange(3 * 256, at::kFloat).view({3, 256});
  const at::Tensor bytes = torch::arange(3 * 16).to(at::kByte).view({1, 3, 4, 4});
  const at::Tensor expected = batch::values_of_bytes(bytes, table, at::MemoryFormat::Contiguous);
  const at::Tensor on_gpu = bytes.to(device_->torch());
  batch::values_of_bytes(on_gpu, table, at::MemoryFormat::Contiguous);
  std::vector<at::Tensor> values;
  const fake_gpu::Counters cost = fake_gpu::cost_of([&] {
    for (int i = 0; i < 3; ++i) {
      values.push_back(batch::values_of_bytes(on_gpu, table, at::MemoryFormat::Contiguous));
    }
  });
  EXPECT_EQ(cost.pageable_copies, 0);
  EXPECT_EQ(cost.synchronizations, 0);
  for (const at::Tensor& each : values) EXPECT_TRUE(each.cpu().equal(expected));
}

// An assertion on the GPU would end the process, and name no sample.
TEST_F(GpuTrainingTest, LabelsThatAreNoClassesDoNotReachTheGpu) {
  const Registry registry = registry_with_changed_digits("mislabeled", []() -> ChangeBatch {
    return [](batch::Batch& batch, std::span<const batch::Draw>) {
      batch.set(batch.target_key(), batch.target() + 10);  // no class
    };
  });
  SmallRun run(world_, settings("cuda", with(kTwelveSteps, {{"data.name", "mislabeled"}})), registry);
  try {
    run.trainer.train();
    ADD_FAILURE() << "not refused";
  } catch (const DataError& error) {
    const std::string text = error.what();
    EXPECT_EQ(text.find("sample "), 0U) << text;
    EXPECT_NE(text.find(" of the training data: the target 1"), std::string::npos) << text;
    EXPECT_NE(text.find(" is not one of the 10 classes"), std::string::npos) << text;
  }
  EXPECT_EQ(at::ones({3}, device_->torch()).sum().item<float>(), 3);
}

// float64; the searches amplify what differs in the order of additions.
TEST_F(GpuTrainingTest, LineSearchesAreThoseOfTheCpu) {
  const Settings common = {{"model.name", "mlp"},
                           {"train.max_steps", "8"},
                           {"train.precision", "fp64"},
                           {"optim.name", "lbfgs"},
                           {"optim.lr", "1"},
                           {"optim.max_iter", "3"},
                           {"optim.line_search_fn", "strong_wolfe"},
                           {"optim.history_size", "6"},
                           {"train.micro_batch", "32"}};
  SmallRun on_gpu(world_, settings("cuda", common));
  SmallRun on_cpu(world_, settings("cpu", common));
  on_gpu.trainer.train();
  on_cpu.trainer.train();
  ASSERT_EQ(on_gpu.losses.size(), 8U);
  for (std::size_t i = 0; i < on_gpu.losses.size(); ++i) {
    EXPECT_NEAR(on_gpu.losses[i], on_cpu.losses[i], 1e-7 * on_cpu.losses[i]) << i;
  }
}

TEST_F(GpuTrainingTest, ACheckpointContinuesTheRunAndFitsTheCpu) {
  const Settings common = {{"model.name", "mlp"},       {"model.dropout", "0.2"}, {"train.max_steps", "12"},
                           {"train.precision", "fp64"}, {"optim.name", "adamw"},  {"train.clip_norm", "1"}};
  Settings first_half = common;
  first_half.emplace_back("train.max_steps", "6");
  SmallRun whole(world_, settings("cuda", common));
  whole.trainer.train();
  SmallRun begun(world_, settings("cuda", first_half));
  begun.trainer.train();
  const checkpoints::Archive archive = capture(begun.trainer, "", begun.trainer.view().world.is_root());
  if (world_.size() > 1) return;  // only rank 0 has it; a file would carry it to the others
  SmallRun continued(world_, settings("cuda", common));
  restore(continued.trainer, archive);
  continued.trainer.train();
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(continued.losses[i], whole.losses[6 + i]) << i;
  parallel::expect_equal(parameters_of(continued.model), parameters_of(whole.model));
  SmallRun on_cpu(world_, settings("cpu", common));
  restore(on_cpu.trainer, archive);
  parallel::expect_equal(parameters_of(on_cpu.model), parameters_of(begun.model));
}

// At 0.01 the loss jumps in the second step, in float32 and on the CPU, too; then rounding decides what becomes of it.
constexpr const char* kStableRate = "0.003";

TEST_F(GpuTrainingTest, SixteenBitsTrainNearlyAsWell) {
  const Settings common = {{"train.max_steps", "60"}, {"optim.lr", kStableRate}};
  SmallRun exact(world_, settings("cuda", common));
  exact.trainer.train();
  for (const char* const precision : {"bf16", "fp16", "tf32"}) {
    SmallRun run(world_, settings("cuda", with(common, {{"run.tf32", "all"}, {"train.precision", precision}})));
    run.trainer.train();
    EXPECT_LT(run.losses.back(), 0.5 * run.losses.front()) << precision;
    EXPECT_NEAR(run.losses.back(), exact.losses.back(), 0.1) << precision;
  }
}

// 16-bit parameters with and without masters; stochastic rounding takes the same random bits on both devices.
TEST_F(GpuTrainingTest, SixteenBitParametersTrainAsOnTheCpu) {
  const Settings common = {{"train.max_steps", "60"},     {"optim.lr", kStableRate}, {"train.precision", "bf16"},
                           {"train.param_dtype", "bf16"}, {"optim.name", "adamw"},   {"train.clip_norm", "1"}};
  const Settings stochastic = {{"train.master_weights", "false"}, {"train.stochastic_rounding", "true"}};
  for (const Settings& more : {Settings{}, stochastic, Settings{{"optim.name", "muon"}, {"optim.momentum", "0.9"}}}) {
    SmallRun on_gpu(world_, settings("cuda", with(common, more)));
    SmallRun on_cpu(world_, settings("cpu", with(common, more)));
    on_gpu.trainer.train();
    on_cpu.trainer.train();
    EXPECT_LT(on_gpu.losses.back(), 0.5 * on_gpu.losses.front());
    EXPECT_NEAR(on_gpu.losses.back(), on_cpu.losses.back(), 0.1);
    EXPECT_EQ(parameters_of(on_gpu.model)[0].scalar_type(), at::kBFloat16);
  }
}

// Skipped steps change no parameter and no moment, and the scale comes to where the CPU's does within one halving.
TEST_F(GpuTrainingTest, StepsThatOverflowAreSkipped) {
  const Settings common = {{"model.name", "mlp"},   {"train.max_steps", "12"},   {"train.precision", "fp16"},
                           {"optim.name", "adamw"}, {"train.init_scale", "1e7"}, {"train.clip_norm", "1"}};
  SmallRun on_gpu(world_, settings("cuda", common));
  SmallRun on_cpu(world_, settings("cpu", common));
  on_gpu.trainer.train();
  on_cpu.trainer.train();
  const optim::GradScaler::State gpu = on_gpu.updates.first().scaler()->state();
  const optim::GradScaler::State cpu = on_cpu.updates.first().scaler()->state();
  EXPECT_GE(gpu.skipped_steps, 2);
  EXPECT_NEAR(static_cast<double>(gpu.skipped_steps), static_cast<double>(cpu.skipped_steps), 1);
  EXPECT_EQ(on_gpu.updates.first().optimizer().steps(0)[0], 12 - gpu.skipped_steps);
  EXPECT_NEAR(on_gpu.losses.back(), on_cpu.losses.back(), 0.1);
}

TEST_F(GpuTrainingTest, AveragesOfWeightsAreThoseOfTheCpu) {
  const Settings common = {{"model.name", "mlp"},   {"train.max_steps", "12"}, {"train.precision", "fp64"},
                           {"optim.name", "adamw"}, {"optim.lr", "0.01"},      {"ema.kind", "annealing"},
                           {"ema.gamma", "4"}};
  std::vector<std::vector<at::Tensor>> averages;
  for (const char* const device : {"cuda", "cpu"}) {
    SmallRun run(world_, settings(device, common));
    run.trainer.add_hook(average_hook(EmaSettings::from(run.sections.at("ema"))));
    run.trainer.train();
    const std::vector<at::Tensor> trained = parameters_of(run.model);
    with_average(*run.model.wrapper, run.updates.average.get(), [&] { averages.push_back(parameters_of(run.model)); });
    EXPECT_FALSE(at::equal(averages.back()[0], trained[0]));
    parallel::expect_equal(parameters_of(run.model), trained);
  }
  parallel::expect_equal(averages[0], averages[1], 1e-6);
}

// float64, so that what differs is the order of additions alone.
TEST_F(GpuTrainingTest, ShardedStagesTrainLikeReplicas) {
  const Settings common = {{"model.name", "mlp"},       {"model.hidden", "256"}, {"train.max_steps", "12"},
                           {"train.precision", "fp64"}, {"optim.name", "adamw"}, {"optim.weight_decay", "0.01"},
                           {"train.clip_norm", "1"},    {"optim.lr", "0.01"},    {"train.micro_batch", "8"},
                           {"ema.kind", "ema"}};
  const auto trained = [&](const Settings& more) {
    auto run = std::make_unique<SmallRun>(world_, settings("cuda", with(common, more)));
    run->trainer.add_hook(average_hook(EmaSettings::from(run->sections.at("ema"))));
    run->trainer.train();
    return run;
  };
  const auto values_of = [&](SmallRun& run) {
    std::vector<at::Tensor> values;
    run.model.wrapper->store().read_whole([&] { values = parameters_of(run.model); });
    return values;
  };
  const auto averages_of = [&](SmallRun& run) {
    std::vector<at::Tensor> values;
    with_average(*run.model.wrapper, run.updates.average.get(), [&] { values = values_of(run); });
    return values;
  };
  const auto replicas = trained({{"strategy.name", "ddp"}});
  for (int stage = 1; stage <= 3; ++stage) {
    for (const char* const offload : {"false", "true"}) {
      SCOPED_TRACE("stage " + std::to_string(stage) + ", offload " + offload);
      const Settings sharded = {{"strategy.name", "sharded"},
                                {"strategy.stage", std::to_string(stage)},
                                {"strategy.blocks", stage == 3 ? "hidden*" : ""},
                                {"strategy.offload", offload}};
      const auto run = trained(sharded);
      ASSERT_EQ(run->losses.size(), replicas->losses.size());
      for (std::size_t i = 0; i < run->losses.size(); ++i) {
        EXPECT_NEAR(run->losses[i], replicas->losses[i], 1e-7 * std::abs(replicas->losses[i])) << i;
      }
      parallel::expect_equal(values_of(*run), values_of(*replicas), 1e-6);
      parallel::expect_equal(averages_of(*run), averages_of(*replicas), 1e-6);
    }
  }
}

// State that lies on the GPU in slices, or in the host's memory, comes to a checkpoint and back.
TEST_F(GpuTrainingTest, ShardedCheckpointsContinueTheRunAndFitReplicas) {
  const testing::TemporaryFolder mine;
  const std::string folder = world_.broadcast(mine.path());
  const Settings common = {{"model.name", "mlp"},   {"model.hidden", "256"},  {"train.max_steps", "12"},
                           {"optim.name", "adamw"}, {"train.clip_norm", "1"}, {"train.precision", "fp64"},
                           {"ema.kind", "ema"}};
  const auto make = [&](const Settings& more) {
    auto run = std::make_unique<SmallRun>(world_, settings("cuda", with(common, more)));
    run->trainer.add_hook(average_hook(EmaSettings::from(run->sections.at("ema"))));
    return run;
  };
  for (int stage = 1; stage <= 3; ++stage) {
    for (const char* const offload : {"false", "true"}) {
      SCOPED_TRACE("stage " + std::to_string(stage) + ", offload " + offload);
      const std::string path = folder + "/" + std::to_string(stage) + offload;
      const Settings sharded = {
          {"strategy.name", "sharded"}, {"strategy.stage", std::to_string(stage)}, {"strategy.offload", offload}};
      const auto whole = make(sharded);
      whole->trainer.train();
      const auto begun = make(with(sharded, {{"train.max_steps", "6"}}));
      begun->trainer.train();
      const checkpoints::Archive taken = capture(begun->trainer, "", world_.is_root());
      if (world_.is_root()) checkpoints::write(path, 6, taken);
      world_.barrier();
      const checkpoints::Archive archive = checkpoints::read(checkpoints::checkpoint_of(path, 6));
      for (const Settings& strategy : {sharded, Settings{{"strategy.name", "ddp"}}}) {
        const auto continued = make(strategy);
        restore(continued->trainer, archive);
        continued->trainer.train();
        for (std::size_t i = 0; i < 6; ++i) {
          EXPECT_NEAR(continued->losses[i], whole->losses[6 + i], 1e-7 * whole->losses[6 + i]) << i;
        }
      }
    }
  }
}

TEST_F(GpuTrainingTest, ShardedStepsThatOverflowAreSkippedByAll) {
  const Settings common = {{"model.name", "mlp"},
                           {"train.max_steps", "12"},
                           {"train.precision", "fp16"},
                           {"optim.name", "adamw"},
                           {"train.init_scale", "1e7"}};
  SmallRun replicas(world_, settings("cuda", with(common, {{"strategy.name", "ddp"}})));
  replicas.trainer.train();
  const std::int64_t skipped = replicas.updates.first().scaler()->state().skipped_steps;
  EXPECT_GE(skipped, 2);
  for (const char* const stage : {"1", "2", "3"}) {
    SmallRun run(world_, settings("cuda", with(common, {{"strategy.name", "sharded"}, {"strategy.stage", stage}})));
    run.trainer.train();
    EXPECT_NEAR(static_cast<double>(run.updates.first().scaler()->state().skipped_steps), static_cast<double>(skipped),
                1)
        << stage;
    EXPECT_NEAR(run.losses.back(), replicas.losses.back(), 0.1) << stage;
  }
}

TEST_F(GpuTrainingTest, WhatIsDrawnDependsOnTheCountersAlone) {
  const auto drawn = [&](std::uint64_t step) {
    models::seed_generators(1, random::Stream::forward, step, 0, device_->torch());
    return torch::rand({1000}, at::TensorOptions().device(device_->torch())).cpu();
  };
  const at::Tensor first = drawn(5);
  EXPECT_FALSE(at::equal(first, drawn(6)));
  EXPECT_TRUE(at::equal(first, drawn(5)));
}

TEST_F(GpuTrainingTest, LanesAndSharedParametersAreRefused) {
  EXPECT_THROW(SmallRun(world_, settings("cuda", {{"train.lanes", "8"}})), ConfigError);
  EXPECT_THROW(SmallRun(world_, settings("cuda", {{"ddp.shared_parameters", "true"}})), ConfigError);
}

}  // namespace training_test
}  // namespace lockstep::engine
