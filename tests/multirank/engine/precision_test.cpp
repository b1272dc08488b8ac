// SPDX-License-Identifier: BSD-3-Clause
// train.precision, and what loss scaling does to a run.
#include <lockstep/core/error.hpp>
#include <lockstep/log/log.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <filesystem>
#include <memory>

#include "engine/resume/run_state.hpp"
#include "parallel/store/parameter_store.hpp"
#include "small_run.hpp"
#include "support/program.hpp"

namespace lockstep::engine {
namespace precision_test {

const Settings kFp16 = with(kTwelveSteps, {{"train.precision", "fp16"}});
// So large that gradients overflow in the first steps, on few elements when they just about do not.
const Settings kOverflowing = with(kFp16, {{"train.init_scale", "1e7"}, {"train.growth_interval", "3"}});

/// Keeps the reports and a parameter after every step.
class KeepingHook : public Hook {
 public:
  explicit KeepingHook(std::vector<StepReport>& reports, std::vector<at::Tensor>& parameters)
      : reports_(&reports), parameters_(&parameters) {}
  void after_step(RunView& view, const StepReport& report) override {
    reports_->push_back(report);
    parameters_->push_back(view.wrapper.model().parameters()[0].detach().clone());
  }

 private:
  std::vector<StepReport>* reports_;
  std::vector<at::Tensor>* parameters_;
};

struct KeptRun : SmallRun {
  KeptRun(const mpi::Communicator& world, const Settings& settings) : SmallRun(world, settings) {
    trainer.add_hook(Priority::normal, std::make_unique<KeepingHook>(reports, parameters));
  }
  std::int64_t updates_done() { return updates.first().optimizer().steps(0)[0]; }

  std::vector<StepReport> reports;
  std::vector<at::Tensor> parameters;  // the first one, after every step
};

class PrecisionRunTest : public ::testing::Test {
 protected:
  std::string refusal(const Settings& settings) const {
    try {
      SmallRun(world_, with(kTwelveSteps, settings));
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }
  /// Whether all ranks have the same bits. Collective.
  bool is_same_everywhere(const at::Tensor& tensor) const {
    const auto all = world_.all_gather(std::string(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()));
    return std::all_of(all.begin(), all.end(), [&](const std::string& other) { return other == all[0]; });
  }

  mpi::Communicator world_ = mpi::Communicator::world();
};

TEST_F(PrecisionRunTest, SixteenBitsTrainNearlyAsWell) {
  for (const char* const model : {"mlp", "cnn"}) {
    const Settings base = with(kTwelveSteps, {{"model.name", model}});
    SmallRun exact(world_, base);
    exact.trainer.train();
    // A scale at which no step is skipped, so that all do the same.
    for (const Settings& settings :
         {Settings{{"train.precision", "bf16"}}, Settings{{"train.precision", "fp16"}, {"train.init_scale", "1024"}}}) {
      KeptRun run(world_, with(base, settings));
      run.trainer.train();
      const std::string& precision = settings.front().second;
      EXPECT_EQ(run.reports.back().loss_scale.has_value(), precision == "fp16");
      EXPECT_EQ(run.reports.back().skipped_steps, 0);
      EXPECT_EQ(run.parameters.back().scalar_type(), at::kFloat);
      EXPECT_NE(run.losses, exact.losses) << precision << model;
      for (std::size_t i = 0; i < 12; ++i) EXPECT_NEAR(run.losses[i], exact.losses[i], 0.1) << precision << model << i;
    }
  }
}

// The scale is a power of two: with enough bits it changes nothing.
TEST_F(PrecisionRunTest, AStaticScaleIsTakenOutAgain) {
  KeptRun one(world_, with(kFp16, {{"train.loss_scale", "1024"}, {"train.clip_norm", "0.5"}}));
  one.trainer.train();
  KeptRun other(world_, with(kFp16, {{"train.loss_scale", "2048"}, {"train.clip_norm", "0.5"}}));
  other.trainer.train();
  EXPECT_EQ(one.reports.back().loss_scale, 1024);
  EXPECT_EQ(one.reports.back().skipped_steps, 0);
  for (std::size_t i = 0; i < 12; ++i) EXPECT_NEAR(one.losses[i], other.losses[i], 1e-3);
  for (std::size_t i = 0; i < 12; ++i) EXPECT_NEAR(one.norms[i], other.norms[i], 1e-2);
}

TEST_F(PrecisionRunTest, AStepThatOverflowsIsSkippedByAllRanks) {
  for (const char* const clip : {"0", "0.5"}) {
    KeptRun run(world_, with(kOverflowing, {{"train.clip_norm", clip}}));
    run.trainer.train();
    EXPECT_EQ(run.trainer.progress().step, 12);
    std::int64_t skipped = 0;
    double scale = 1e7;
    for (std::size_t i = 0; i < 12; ++i) {
      const StepReport& report = run.reports[i];
      EXPECT_EQ(report.loss_scale, static_cast<double>(static_cast<float>(scale))) << i;
      skipped += report.is_skipped ? 1 : 0;
      EXPECT_EQ(report.skipped_steps, skipped) << i;
      const at::Tensor& before = run.parameters[i == 0 ? 0 : i - 1];
      EXPECT_EQ(at::equal(run.parameters[i], before), report.is_skipped || i == 0) << i;
      EXPECT_EQ(report.grad_norm.has_value(), !report.is_skipped && std::string(clip) != "0") << i;
      const bool grows = i + 1 < 12 && *run.reports[i + 1].loss_scale > scale;
      scale *= report.is_skipped ? 0.5 : grows ? 2 : 1;
      EXPECT_TRUE(is_same_everywhere(run.parameters[i])) << i;
    }
    EXPECT_GE(skipped, 2);
    EXPECT_LE(skipped, 10);
    EXPECT_TRUE(run.reports[0].is_skipped);
    EXPECT_EQ(run.updates_done(), 12 - skipped);  // the count for Adam's bias correction
    EXPECT_EQ(run.updates.first().scaler()->state().skipped_steps, skipped);
  }
}

TEST_F(PrecisionRunTest, TheScaleIsResumedBitForBit) {
  KeptRun straight(world_, kOverflowing);
  straight.trainer.train();
  for (const char* const stop : {"1", "2", "7"}) {
    const auto position = static_cast<std::size_t>(std::atoi(stop));
    KeptRun first(world_, with(kOverflowing, {{"train.max_steps", stop}}));
    first.trainer.train();
    const checkpoints::Archive archive = capture(first.trainer, "", true);
    KeptRun resumed(world_, kOverflowing);
    restore(resumed.trainer, archive);
    EXPECT_EQ(reproducibility_of(resumed.trainer, archive, {}).text(), "bitwise");
    resumed.trainer.train();
    EXPECT_EQ(resumed.losses, std::vector<double>(straight.losses.begin() + static_cast<std::ptrdiff_t>(position),
                                                  straight.losses.end()));
    EXPECT_TRUE(at::equal(resumed.parameters.back(), straight.parameters.back()));
    for (std::size_t i = 0; i < resumed.reports.size(); ++i) {
      EXPECT_EQ(resumed.reports[i].loss_scale, straight.reports[position + i].loss_scale) << i;
      EXPECT_EQ(resumed.reports[i].skipped_steps, straight.reports[position + i].skipped_steps) << i;
    }
  }
}

TEST_F(PrecisionRunTest, AnotherPrecisionContinuesAndSaysSo) {
  SmallRun first(world_, with(kTwelveSteps, {{"train.max_steps", "3"}}));
  first.trainer.train();
  const checkpoints::Archive archive = capture(first.trainer, "", true);
  SmallRun resumed(world_, kFp16);
  restore(resumed.trainer, archive);
  EXPECT_EQ(reproducibility_of(resumed.trainer, archive, {}).text(),
            "statistical, because train.precision is fp16 and was fp32");
  EXPECT_EQ(resumed.updates.first().scaler()->scale(), 65536);
  resumed.trainer.train();
  EXPECT_EQ(resumed.losses.size(), 9U);
}

TEST_F(PrecisionRunTest, ADamagedStateOfTheScalerIsRefused) {
  SmallRun first(world_, with(kFp16, {{"train.max_steps", "1"}}));
  first.trainer.train();
  checkpoints::Archive archive = capture(first.trainer, "", true);
  archive.set("/scaler", "scale", -1.0);
  SmallRun resumed(world_, kFp16);
  EXPECT_THROW(restore(resumed.trainer, archive), CheckpointError);
  SmallRun anew(world_, kFp16);
  restore(anew.trainer, archive, {.resets_optim = true});
  EXPECT_EQ(anew.updates.first().scaler()->scale(), 65536);
}

// The forward is finite, no backward is: some other fault than the scale, or a scale that never moves.
TEST_F(PrecisionRunTest, SkippingHasAnEnd) {
  SmallRun run(world_, with(kFp16, {{"train.loss_scale", "1e30"}, {"train.max_steps", "100"}}));
  try {
    run.trainer.train();
    ADD_FAILURE() << "it trained";
  } catch (const NumericError& error) {
    EXPECT_TRUE(error.is_agreed());
    EXPECT_NE(std::string(error.what()).find("64 consecutive steps"), std::string::npos) << error.what();
  }
  EXPECT_EQ(run.losses.size(), 63U);
}

TEST_F(PrecisionRunTest, WithoutAScalerANormThatIsNotFiniteStaysAnError) {
  for (const char* const norm_type : {"2", "inf"}) {
    SmallRun run(world_, with(kTwelveSteps, {{"optim.lr", "1e30"},
                                             {"optim.name", "sgd"},
                                             {"train.clip_norm", "1"},
                                             {"train.clip_norm_type", norm_type}}));
    run.model.wrapper->store().write_whole([&] {
      const torch::NoGradGuard no_grad;
      run.model.wrapper->model().parameters()[0].fill_(1e38);
    });
    EXPECT_THROW(run.trainer.train(), NumericError);
  }
}

TEST_F(PrecisionRunTest, ClippingByGroupAgreesOnAllRanks) {
  const Settings base = with(kTwelveSteps, {{"optim.weight_decay", "0.1"},
                                            {"optim.no_decay", "norms_biases"},
                                            {"train.clip_norm", "0.2"},
                                            {"train.clip_norm_type", "1"}});
  KeptRun all(world_, base);
  all.trainer.train();
  KeptRun by_group(world_, with(base, {{"train.clip_scope", "group"}}));
  by_group.trainer.train();
  EXPECT_NEAR(by_group.norms[0], all.norms[0], 1e-9 * all.norms[0]);
  EXPECT_NE(by_group.losses[2], all.losses[2]);
  EXPECT_TRUE(is_same_everywhere(by_group.parameters.back()));
}

TEST_F(PrecisionRunTest, LanesHaveTheSameBitsOnAnyNumberOfRanks) {
  const Settings settings = with(kOverflowing, {{"train.lanes", "4"}});
  KeptRun run(world_, settings);
  run.trainer.train();
  EXPECT_GE(run.reports.back().skipped_steps, 2);
  EXPECT_EQ(run.updates_done(), 12 - run.reports.back().skipped_steps);
  const mpi::Communicator myself = world_.split(world_.rank());
  KeptRun alone(myself, settings);
  alone.trainer.train();
  EXPECT_EQ(run.losses, alone.losses);
  EXPECT_TRUE(at::equal(run.parameters.back(), alone.parameters.back()));
}

TEST_F(PrecisionRunTest, Tf32IsFloat32OnACpu) {
  SmallRun exact(world_, kTwelveSteps);
  exact.trainer.train();
  SmallRun run(world_, with(kTwelveSteps, {{"train.precision", "tf32"}, {"run.device", "cpu"}}));
  run.trainer.train();
  EXPECT_EQ(run.losses, exact.losses);
}

TEST_F(PrecisionRunTest, WhatDoesNotFitIsRefused) {
  EXPECT_EQ(refusal({{"train.growth_factor", "3"}}),
            "train.growth_factor (test) requires train.precision=fp16; with fp32 losses are not scaled");
  EXPECT_EQ(refusal({{"train.precision", "bf16"}, {"train.loss_scale", "512"}}),
            "train.loss_scale (test) requires train.precision=fp16; with bf16 losses are not scaled");
  EXPECT_EQ(refusal({{"train.precision", "fp16"}, {"train.loss_scale", "static"}}),
            "train.loss_scale (test): 'static' is not a loss scale; use dynamic or a number > 0");
  EXPECT_NE(refusal({{"train.precision", "fp16"}, {"train.growth_factor", "1"}}).find("train.growth_factor"),
            std::string::npos);
  EXPECT_NE(
      refusal({{"train.precision", "fp16"}, {"train.backoff_factor", "1"}}).find("backoff_factor must be between"),
      std::string::npos);
  EXPECT_EQ(refusal({{"train.precision", "fp16"}, {"train.loss_scale", "8"}, {"train.init_scale", "4"}}),
            "train.init_scale (test) requires train.loss_scale=dynamic; a constant scale has no initial value");
  EXPECT_EQ(refusal({{"train.loss_scale", "dynamic"}, {"train.growth_factor", "2"}}),
            "");  // accepted, as stored configurations contain it
  EXPECT_NE(refusal({{"train.precision", "half"}}).find("train.precision"), std::string::npos);
}

TEST_F(PrecisionRunTest, BatchNormAndMicroBatchesAreWarnedOf) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/log";
  const auto said = [&](const Settings& settings) {
    log::configure({.rank = world_.rank(), .world_size = world_.size(), .file = path, .to_console = false});
    SmallRun(world_, with({{"model.name", "resnet18"}, {"model.width", "8"}, {"data.train_size", "100"}}, settings));
    log::configure({.rank = world_.rank(), .world_size = world_.size()});
    const std::string text = testing::read_file(path);
    std::filesystem::remove(path);
    return text.find("batch norm uses the statistics of each micro-batch") != std::string::npos;
  };
  EXPECT_FALSE(said({}));
  EXPECT_TRUE(said({{"train.micro_batch", "4"}}));
}

}  // namespace precision_test
}  // namespace lockstep::engine
