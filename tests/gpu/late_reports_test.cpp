// SPDX-License-Identifier: BSD-3-Clause
// Steps that are queued before the host knows the result of the previous one.
#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "fake_functions.hpp"
#include "gpu_test.hpp"
#include "multirank/engine/changed_digits.hpp"
#include "multirank/engine/small_run.hpp"
#include "multirank/parallel/parallel_test.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::engine {
namespace late_reports_test {

using fake_gpu::Counters;

/// Counts what each step costs, until the next one begins.
class CostHook : public Hook {
 public:
  explicit CostHook(std::vector<Counters>& steps) : Hook(HookReads::nothing()), steps_(&steps) {}
  void before_step(RunView& run) override {
    const Counters now = fake_gpu::counted();
    if (run.progress.step > 0) steps_->push_back(now - before_);
    before_ = now;
    fake_gpu::note_step();
  }

 private:
  std::vector<Counters>* steps_;
  Counters before_;
};

/// The results of a run.
struct Seen {
  std::vector<double> losses;
  std::vector<std::int64_t> skipped;
  std::vector<std::int64_t> starts;  // steps where the run began, and to which it went back
  std::vector<at::Tensor> parameters;
  std::vector<std::int64_t> counts;  // numbers of updates
  double scale = 1;
  std::int64_t waits = 0;  // steps with a report that was complete after the step
  std::string error;
};

/// @param waits  whether the host waits for each step
class SeeingHook : public Hook {
 public:
  SeeingHook(Seen& seen, bool waits) : Hook(waits ? HookReads() : HookReads::nothing()), seen_(&seen) {}
  void on_measured(RunView&, const StepReport& report) override {
    seen_->losses.resize(static_cast<std::size_t>(report.progress.step));
    seen_->losses.back() = report.loss;
    if (report.is_skipped) seen_->skipped.push_back(report.progress.step);
  }
  void after_step(RunView&, const StepReport& report) override { seen_->waits += report.is_measured ? 1 : 0; }
  void after_train(RunView& run, Outcome outcome) override {
    if (outcome == Outcome::failed) return;
    for (const at::Tensor& p : run.wrapper.model().parameters()) seen_->parameters.push_back(p.detach().cpu().clone());
    const auto counts = run.optimizer.optimizer().steps(0);
    seen_->counts.assign(counts.begin(), counts.end());
    if (run.optimizer.scaler() != nullptr) seen_->scale = run.optimizer.scaler()->scale();
  }

 private:
  Seen* seen_;
};

std::string source_folder() {
  const char* const source = std::getenv("LOCKSTEP_SOURCE_DIR");
  return source != nullptr ? source : ".";
}

class GpuLateReportsTest : public GpuTest {
 protected:
  ~GpuLateReportsTest() override { world_.barrier(); }

  /// The costs of the last five steps of a run that are neither logged nor the last.
  /// @param waits  whether the host waits for each step
  std::vector<Counters> costs(const Settings& settings, bool waits = false) const {
    const Settings common = {{"run.device", "cuda"},
                             {"run.threads", "1"},
                             {"data.workers", "0"},
                             {"train.max_steps", "31"},
                             {"train.global_batch_size", std::to_string(2 * world_.size())}};
    SmallRun run(world_, with(common, settings));
    std::vector<Counters> steps;
    run.trainer.add_hook(Priority::highest, std::make_unique<CostHook>(steps));
    run.trainer.add_hook(log_hook(/*interval=*/waits ? 1 : 100));
    run.trainer.train();
    return {steps.end() - 5, steps.end()};
  }

  void expect_no_waits(const Settings& settings) const {
    std::int64_t host_allocations = 0;
    for (const Counters& step : costs(settings)) {
      EXPECT_EQ(step.synchronizations, 0);
      EXPECT_EQ(step.pageable_copies, 0);
      EXPECT_EQ(step.device_allocations, 0);
      EXPECT_EQ(step.device_frees, 0);
      host_allocations += step.host_allocations;
    }
    // When the copy of a batch is late for the first time, the loader takes one more pair of buffers.
    EXPECT_LE(host_allocations, 2);
  }

  Seen run(int bad_times, const Settings& settings, bool waits) {
    const Settings common = {{"run.device", "cuda"},    {"run.threads", "1"},    {"data.name", "poisoned"},
                             {"data.train_size", "96"}, {"data.val_size", "8"},  {"data.workers", "0"},
                             {"model.name", "mlp"},     {"model.hidden", "8"},   {"train.max_epochs", "2"},
                             {"optim.name", "adamw"},   {"optim.lr", "0.01"},    {"eval.every", "never"},
                             {"log.every", "100"},      {"run.peak_flops", "0"}, {"train.global_batch_size", "8"}};
    const Registry registry = poisoned_registry(bad_times);
    const Sections sections = sections_of(with(common, settings), registry);
    Seen seen;
    TrainRequest request = quiet_request(sections, registry,
                                         world_.broadcast(folder_.path()) + "/" + std::to_string(++runs_), seen.starts);
    request.hooks.emplace_back(Priority::normal, std::make_unique<SeeingHook>(seen, waits));
    try {
      train(world_, std::move(request));
    } catch (const NumericError& error) {
      seen.error = error.what();
    }
    return seen;
  }

  /// A run whose host waits for each step comes to the same.
  Seen expect_same(int bad_times, const Settings& settings) {
    Seen late = run(bad_times, settings, false);
    const Seen waiting = run(bad_times, settings, true);
    EXPECT_LT(late.waits, waiting.waits);
    EXPECT_EQ(late.error, waiting.error);
    EXPECT_EQ(late.skipped, waiting.skipped);
    EXPECT_EQ(late.starts, waiting.starts);
    EXPECT_EQ(late.counts, waiting.counts);
    EXPECT_EQ(late.scale, waiting.scale);
    EXPECT_EQ(late.losses.size(), waiting.losses.size());
    for (std::size_t i = 0; i < late.losses.size() && i < waiting.losses.size(); ++i) {
      EXPECT_TRUE(late.losses[i] == waiting.losses[i] || (std::isnan(late.losses[i]) && std::isnan(waiting.losses[i])))
          << i << ": " << late.losses[i] << " " << waiting.losses[i];
    }
    EXPECT_EQ(late.parameters.size(), waiting.parameters.size());
    parallel::expect_equal(late.parameters, waiting.parameters);
    return late;
  }

  testing::TemporaryFolder folder_;
  int runs_ = 0;
};

/// Narrow layers cost as many waits as wide ones.
const Settings kResnet = {{"data.name", "synthetic"}, {"data.shape", "3,64,64"},  {"data.size", "128"},
                          {"data.classes", "10"},     {"model.name", "resnet50"}, {"model.width", "8"},
                          {"ddp.bucket_mb", "0.5"},   {"optim.name", "sgd"},      {"optim.momentum", "0.9"},
                          {"optim.lr", "0.01"},       {"train.max_steps", "11"}};

class GpuStepCostTest : public GpuLateReportsTest {
 protected:
  void SetUp() override {
    GpuLateReportsTest::SetUp();
    if (!IsSkipped() && !fake_gpu::is_here()) GTEST_SKIP() << "only the fake GPU counts what a step costs";
  }
};

TEST_F(GpuStepCostTest, TheHostWaitsForEachStepOfWhichItLogsTheLoss) {
  for (const Counters& step : costs({{"model.name", "mlp"}, {"data.train_size", "480"}}, /*waits=*/true)) {
    EXPECT_GT(step.synchronizations, 0);
    EXPECT_EQ(step.pageable_copies, 0);
  }
}

TEST_F(GpuStepCostTest, TheHostDoesNotWaitForAResnet) { expect_no_waits(kResnet); }

TEST_F(GpuStepCostTest, TheHostDoesNotWaitForSynchronizedBatchNorm) {
  expect_no_waits(with(kResnet, {{"ddp.sync_batch_norm", "true"}}));
}

TEST_F(GpuStepCostTest, TheHostDoesNotWaitForACapturedResnet) {
  expect_no_waits(with(kResnet, {{"run.cuda_graphs", "true"}}));
}

TEST_F(GpuStepCostTest, TheHostDoesNotWaitForAGpt) {
  const Settings gpt = {{"data.name", "text"},      {"data.path", source_folder() + "/README.md"},
                        {"data.block", "16"},       {"model.name", "gpt"},
                        {"model.depth", "2"},       {"model.num_heads", "2"},
                        {"model.embed_dim", "32"},  {"model.dropout", "0.1"},
                        {"optim.name", "adamw"},    {"train.clip_norm", "1"},
                        {"train.precision", "bf16"}};
  expect_no_waits(gpt);
  expect_no_waits(with(gpt, {{"run.cuda_graphs", "true"}}));
}

// The loss scale and the counts of updates are those of a host that waits.
TEST_F(GpuStepCostTest, TheHostDoesNotWaitForStepsThatMayBeSkipped) {
  const Settings mlp = {{"model.name", "mlp"}, {"data.train_size", "480"}, {"optim.name", "adamw"}};
  expect_no_waits(with(mlp, {{"train.precision", "fp16"}}));
  expect_no_waits(with(mlp, {{"train.nonfinite", "skip"}}));
  expect_no_waits(with(mlp, {{"train.precision", "fp16"}, {"run.cuda_graphs", "true"}}));
}

// Factors of classes stay on the device. In a captured step, the divisor of each batch is written there.
TEST_F(GpuStepCostTest, TheHostDoesNotWaitForWeightedClasses) {
  const Settings mlp = {{"model.name", "mlp"},
                        {"data.train_size", "480"},
                        {"loss.ignore_index", "0"},
                        {"loss.class_weights", "1,2,3,4,5,0.5,1,1,2,1"}};
  expect_no_waits(mlp);
  const Settings captured = with(mlp, {{"run.cuda_graphs", "true"}});
  expect_no_waits(captured);
  for (const Counters& step : costs(captured)) EXPECT_LT(step.launches, 12);
}

TEST_F(GpuLateReportsTest, WeightsAreThoseOfAHostThatWaits) {
  for (const Settings& settings :
       std::vector<Settings>{{},
                             {{"train.clip_norm", "1"}, {"model.dropout", "0.1"}},
                             {{"train.micro_batch", "2"}},
                             {{"run.cuda_graphs", "true"}, {"train.clip_norm", "1"}},
                             {{"strategy.name", "sharded"}, {"strategy.stage", "2"}},
                             {{"ckpt.every", "5"}, {"ema.kind", "ema"}, {"eval.every", "7"}}}) {
    SCOPED_TRACE(settings.empty() ? "" : settings.front().first);
    const Seen seen = expect_same(0, settings);
    EXPECT_EQ(seen.losses.size(), 24U);
  }
}

TEST_F(GpuLateReportsTest, StepsAreSkippedAsByAHostThatWaits) {
  for (const char* const compiles : {"false", "true"}) {
    for (const char* const clip : {"0", "1"}) {
      const Seen seen =
          expect_same(99, {{"train.nonfinite", "skip"}, {"train.clip_norm", clip}, {"run.cuda_graphs", compiles}});
      EXPECT_EQ(seen.skipped.size(), 2U);
      EXPECT_EQ(seen.counts.front(), 22);
      EXPECT_EQ(seen.error, "");
    }
  }
}

TEST_F(GpuLateReportsTest, TheRunStopsOneStepLaterForTheSameReason) {
  const Seen seen = expect_same(99, {});
  EXPECT_NE(seen.error.find("the loss is not finite at step "), std::string::npos) << seen.error;
}

TEST_F(GpuLateReportsTest, TheRunGoesBackToTheSameCheckpoint) {
  const Settings settings = {{"train.nonfinite", "roll_back"}, {"ckpt.every", "3"}};
  const Seen once = expect_same(1, settings);
  EXPECT_TRUE(once.skipped.empty());
  EXPECT_GE(once.starts.size(), 2U);
  const Seen always = expect_same(99, settings);
  EXPECT_EQ(always.skipped.size(), 2U);
  EXPECT_EQ(always.starts.size(), 3U);
  // The step is skipped if there is no checkpoint.
  const Seen nowhere = expect_same(99, {{"train.nonfinite", "roll_back"}, {"ckpt.keep_best", "0"}});
  EXPECT_EQ(nowhere.skipped.size(), 2U);
  EXPECT_EQ(nowhere.starts.size(), 1U);
}

TEST_F(GpuLateReportsTest, OverflowsReduceTheLossScaleAsForAHostThatWaits) {
  for (const char* const compiles : {"false", "true"}) {
    const Seen seen =
        expect_same(0, {{"train.precision", "fp16"}, {"train.init_scale", "1e9"}, {"run.cuda_graphs", compiles}});
    EXPECT_GT(seen.skipped.size(), 3U);
    EXPECT_LT(seen.scale, 1e8);
    EXPECT_EQ(seen.counts.front(), 24 - std::ssize(seen.skipped));
  }
}

}  // namespace late_reports_test
}  // namespace lockstep::engine
