// SPDX-License-Identifier: BSD-3-Clause
// Where the time of a step goes: links and ranks that are made slow are found.
#include <thread>

#include "parallel/store/step_recorder.hpp"
#include "parallel_test.hpp"
#include "support/testing_collectives.hpp"

namespace lockstep::parallel {
namespace report_test {

using Seconds = std::chrono::duration<double>;

const std::vector<std::int64_t> kWidths = {64, 256, 256, 8};
constexpr int kSteps = 6;
constexpr int kWarmUpSteps = 3;

/// One bucket for each parameter.
DdpOptions reporting(bool shares) {
  return {.reducer = {.limits = {.bucket_bytes = {1}, .last_bucket_bytes = 0}},
          .shares_parameters = shares,
          .reports_times = true};
}

/// Takes its time.
class Slow : public Layers {
 public:
  explicit Slow(double seconds) : Layers(kWidths), seconds_(seconds) {}
  at::Tensor forward(const at::Tensor& input) override {
    std::this_thread::sleep_for(Seconds(seconds_));
    return Layers::forward(input);
  }

 private:
  double seconds_;
};

void train(DistributedDataParallel& wrapper, int rank, int steps,
           const optim::OptimWrapper::WrapperOptions& options = {}) {
  auto optimizer = make_optimizer(wrapper.parameters(), {{"name", "sgd"}, {"lr", "0.001"}}, options);
  for (int step = 0; step < steps; ++step) wrapper.train_step(batch_of(rank, step, kWidths), optimizer);
}

void expect_in_order(const StepTimeline& step) {
  double last_launch = 0;
  double last_wait = step.backward_end;
  for (std::size_t b = 0; b < step.buckets.size(); ++b) {
    SCOPED_TRACE("bucket " + std::to_string(b));
    const BucketTimes& times = step.buckets[b];
    EXPECT_GT(times.ready, 0);
    EXPECT_LE(times.ready, times.launched);
    EXPECT_LE(last_launch, times.launched);
    EXPECT_LE(times.launched, times.wait_begin);
    EXPECT_LE(last_wait, times.wait_begin);
    EXPECT_LE(times.wait_begin, times.wait_end);
    EXPECT_LE(times.wait_end, times.visit_begin);
    // Seconds are sums of many differences.
    EXPECT_LE(times.visit_begin + times.transfer + times.update, times.visit_end + 1e-9);
    EXPECT_LE(times.visit_end, step.end);
    last_launch = times.launched;
    last_wait = times.wait_end;
  }
  EXPECT_LE(step.meeting_begin, step.meeting_end);
  EXPECT_LE(step.meeting_end, step.end);
  EXPECT_GT(step.update(), 0);
  EXPECT_GT(step.compute(), 0);
}

class ReportTest : public ParallelTest, public ::testing::WithParamInterface<bool> {};  // shares parameters

TEST_P(ReportTest, ASlowLinkMakesAStepCommunicationBound) {
  constexpr double kLatency = 0.010;
  const auto link = testing::make_delay_collectives(make_collectives(), {.latency_s = kLatency});
  DistributedDataParallel wrapper(std::make_shared<Layers>(kWidths), world_, *link, reporting(GetParam()));
  train(wrapper, rank(), kSteps);
  const DdpReport report = wrapper.report();
  EXPECT_EQ(report.ranks.size(), static_cast<std::size_t>(size()));
  if (size() == 1) {
    EXPECT_EQ(bound_sentence(report), "one rank: no communication");
    return;
  }
  EXPECT_EQ(report.steps, kSteps - kWarmUpSteps);
  EXPECT_TRUE(bound_sentence(report).starts_with("communication-bound; communication exposed"))
      << bound_sentence(report);
  for (const StepTimeline& step : report.ranks) {
    EXPECT_EQ(step.buckets.size(), 6u);
    expect_in_order(step);
    // The link carries one bucket after the other.
    for (std::size_t b = 0; b < step.buckets.size(); ++b) {
      EXPECT_GE(step.buckets[b].wait_end - step.buckets[0].launched, static_cast<double>(b + 1) * kLatency);
    }
  }
}

TEST_P(ReportTest, ASlowRankIsFoundAndTheOthersWaitForIt) {
  if (size() == 1) GTEST_SKIP() << "needs another rank that waits";
  constexpr double kDelay = 0.150;
  const auto wrapper = wrap(std::make_shared<Slow>(is_last() ? kDelay : 0), reporting(GetParam()));
  train(*wrapper, rank(), kSteps);
  const DdpReport report = wrapper->report();
  EXPECT_EQ(slowest_rank(report) + 1, report.ranks.size());
  EXPECT_TRUE(bound_sentence(report).starts_with("compute-bound; ")) << bound_sentence(report);
  for (std::size_t each = 0; each < report.ranks.size(); ++each) {
    const StepTimeline& step = report.ranks[each];
    expect_in_order(step);
    const bool is_slow = each + 1 == report.ranks.size();
    EXPECT_EQ(step.wait() > kDelay / 2, !is_slow) << "rank " << each << " waits " << step.wait();
  }
}

// The time that lies between the micro_batches of a step is none of its time.
TEST_P(ReportTest, AStepOfSeveralMicroBatchesCountsOnce) {
  if (size() == 1) GTEST_SKIP() << "one rank has no times";
  const auto wrapper = wrap(std::make_shared<Layers>(kWidths), reporting(GetParam()));
  auto optimizer = make_optimizer(wrapper->parameters(), {{"name", "sgd"}}, {.accumulation_steps = 2});
  for (int i = 0; i < 2 * kSteps; ++i) {
    if (i % 2 == 1) std::this_thread::sleep_for(Seconds(0.1));
    wrapper->train_step(batch_of(rank(), i, kWidths), optimizer);
  }
  const DdpReport report = wrapper->report();
  EXPECT_EQ(report.steps, kSteps - kWarmUpSteps);
  for (const StepTimeline& step : report.ranks) {
    expect_in_order(step);
    EXPECT_LT(step.end, 0.1);
  }
}

// Slices are visited twice if there is a norm to clip by; the first visit reads the peers.
TEST_P(ReportTest, ClippingIsPartOfTheUpdate) {
  if (size() == 1) GTEST_SKIP() << "one rank has no times";
  const auto wrapper = wrap(std::make_shared<Layers>(kWidths), reporting(GetParam()));
  train(*wrapper, rank(), kSteps, {.clip = {.max_norm = 0.1}});
  for (const StepTimeline& step : wrapper->report().ranks) expect_in_order(step);
}

TEST_P(ReportTest, LanesAreReportedToo) {
  if (size() == 1) GTEST_SKIP() << "one rank has no times";
  DdpOptions options = reporting(GetParam());
  options.lanes = size();
  const auto wrapper = wrap(std::make_shared<Layers>(kWidths), options);
  train(*wrapper, rank(), kSteps);
  const DdpReport report = wrapper->report();
  EXPECT_EQ(report.steps, kSteps - kWarmUpSteps);
  for (const StepTimeline& step : report.ranks) {
    EXPECT_EQ(step.buckets.size(), 6u);
    expect_in_order(step);
  }
}

TEST_P(ReportTest, AReportChangesNoBit) {
  std::vector<at::Tensor> expected;
  for (const bool reports : {false, true}) {
    DdpOptions options = reporting(GetParam());
    options.reports_times = reports;
    auto model = std::make_shared<Layers>(kWidths);
    const auto wrapper = wrap(model, options);
    train(*wrapper, rank(), kSteps);
    EXPECT_EQ(wrapper->report().steps, reports && size() > 1 ? kSteps - kWarmUpSteps : 0);
    if (!reports) expected = values_of(*model);
    expect_equal(values_of(*model), expected);
  }
}

// A step that an exception cut short leaves nothing behind in the next.
TEST_P(ReportTest, AStepThatFailedIsForgotten) {
  if (size() == 1) GTEST_SKIP() << "one rank has no times";
  const auto wrapper = wrap(std::make_shared<Layers>(kWidths), reporting(GetParam()));
  auto optimizer = make_optimizer(wrapper->parameters(), {{"name", "sgd"}});
  for (int step = 0; step < kSteps; ++step) {
    batch::Batch unfit = batch_of(rank(), step, kWidths);
    unfit.set("label", at::zeros({1, 3}, at::kDouble));
    EXPECT_ANY_THROW(wrapper->train_step(unfit, optimizer));
    std::this_thread::sleep_for(Seconds(0.1));
    wrapper->reset_state();
    wrapper->train_step(batch_of(rank(), step, kWidths), optimizer);
  }
  for (const StepTimeline& step : wrapper->report().ranks) {
    expect_in_order(step);
    EXPECT_LT(step.end, 0.1);
  }
}

/// A device that passes the marks of a step only when the next one begins, in one second each.
class LateMarks : public StreamMarks {
 public:
  StreamMark mark() override { return std::make_shared<int>(count_++); }
  bool is_over(const StreamMark& mark) const override { return *static_cast<const int*>(mark.get()) < passed_; }
  double seconds_between(const StreamMark& begin, const StreamMark& end) const override {
    EXPECT_TRUE(is_over(begin) && is_over(end));
    return *static_cast<const int*>(end.get()) - *static_cast<const int*>(begin.get());
  }
  void wait(const StreamMark&) const override {
    ++waits_;
    passed_ = count_;
  }

  void pass_all() { passed_ = count_; }
  int waits() const { return waits_; }

 private:
  int count_ = 0;
  mutable int passed_ = 0;
  mutable int waits_ = 0;
};

TEST_F(ParallelTest, TheMarksOfAStepAreReadLate) {
  auto device = std::make_unique<LateMarks>();
  LateMarks& marks = *device;
  StepRecorder recorder(std::move(device));
  recorder.set_buckets(std::vector<Bucket>(1));
  for (int step = 0; step < kSteps; ++step) {
    recorder.micro_batch_begins();
    marks.pass_all();
    recorder.note(StepPoint::ready, 0);
    recorder.note(StepPoint::launched, 0);
    recorder.note(StepPoint::backward_end);
    recorder.note(StepPoint::wait_begin, 0);
    recorder.note(StepPoint::wait_end, 0);
    recorder.micro_batch_ends(/*completes_step=*/true);
  }
  EXPECT_EQ(marks.waits(), 0);
  const DdpReport report = recorder.report(world_);
  EXPECT_EQ(marks.waits(), 1) << "for the last step";
  EXPECT_TRUE(report.is_of_gpu);
  EXPECT_EQ(report.steps, kSteps - kWarmUpSteps);
  ASSERT_EQ(report.ranks.size(), static_cast<std::size_t>(size()));
  for (const StepTimeline& step : report.ranks) {
    EXPECT_EQ(step.end, 6);
    EXPECT_EQ(step.backward_end, 3);
    EXPECT_EQ(step.wait(), 1);
    EXPECT_EQ(step.update(), 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Parameters, ReportTest, ::testing::Bool(),
                         [](const auto& shares) { return shares.param ? "Shared" : "Private"; });

}  // namespace report_test
}  // namespace lockstep::parallel
