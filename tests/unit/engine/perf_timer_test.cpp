// SPDX-License-Identifier: BSD-3-Clause

#include "engine/steps/perf_timer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::engine {
namespace perf_timer_test {

/// A host's clock that stands still until it is told, and a device that reaches marks when it is told.
struct Times {
  double now_s = 100;
  double device_ms = 0;        ///< device time of the next mark
  std::vector<double> marks;   ///< marks in milliseconds
  std::size_t reached = 1000;  ///< marks that are over
  int waits = 0;
};

class StandInClock : public DeviceClock {
 public:
  explicit StandInClock(Times& times) : times_(&times) {}

  Mark mark() override {
    times_->marks.push_back(times_->device_ms);
    return std::make_shared<std::size_t>(times_->marks.size() - 1);
  }
  bool is_over(const Mark& mark) const override { return index_of(mark) < times_->reached; }
  double ms_between(const Mark& begin, const Mark& end) const override {
    return times_->marks[index_of(end)] - times_->marks[index_of(begin)];
  }
  void wait() const override {
    ++times_->waits;
    times_->reached = times_->marks.size();
  }

 private:
  static std::size_t index_of(const Mark& mark) { return *static_cast<const std::size_t*>(mark.get()); }

  Times* times_;
};

class PerfTimerTest : public ::testing::Test {
 protected:
  PerfStats::TimeFunction clock() {
    return [this] { return times_.now_s; };
  }
  void pass(double ms) { times_.now_s += ms / 1000; }
  void time(PerfStats& stats, const std::string& name, double ms, double device_ms = 0) {
    const PerfScope scope(name, &stats);
    pass(ms);
    times_.device_ms += device_ms;
  }

  Times times_;
};

TEST(PerfMetricTest, IsTheReferencesSeries) {
  PerfMetric metric;
  EXPECT_EQ(metric.average(), 0);
  for (const double value : {1.0, 2.0, 3.0}) metric.add(value);
  EXPECT_EQ(metric.last(), 3);
  EXPECT_EQ(metric.sum(), 6);
  EXPECT_EQ(metric.count(), 3);
  EXPECT_EQ(metric.average(), 2);
  EXPECT_NEAR(metric.smoothed(), 1.29, 1e-12);
}

TEST_F(PerfTimerTest, IntervalsOfOneNameAddUp) {
  PerfStats stats(nullptr, clock());
  time(stats, "forward", 2);
  time(stats, "forward", 4);
  time(stats, "backward", 1);
  const PerfStats::TimedSection& forward = stats.sections().at("forward");
  EXPECT_EQ(forward.host_ms.count(), 2);
  EXPECT_NEAR(forward.host_ms.sum(), 6, 1e-6);
  EXPECT_EQ(forward.device_ms.count(), 0);
  EXPECT_NEAR(stats.sections().at("backward").host_ms.last(), 1, 1e-6);
}

TEST_F(PerfTimerTest, RunsByHandAndIsRecordedOnce) {
  PerfStats stats(nullptr, clock());
  PerfTimer timer("total", &stats);
  EXPECT_THROW(timer.record(), std::logic_error);  // nothing was timed
  timer.stop();                                    // it is not running
  timer.start();
  pass(3);
  timer.start();  // it is running: keeps its beginning
  pass(4);
  EXPECT_TRUE(timer.is_running());
  EXPECT_THROW(timer.record(), std::logic_error);
  timer.stop();
  pass(10);
  timer.record();
  EXPECT_THROW(timer.record(), std::logic_error);
  EXPECT_EQ(stats.sections().at("total").host_ms.count(), 1);
  EXPECT_NEAR(stats.sections().at("total").host_ms.last(), 7, 1e-6);
}

TEST_F(PerfTimerTest, AScopeThatEndsByAnExceptionIsNotRecorded) {
  PerfStats stats(nullptr, clock());
  try {
    const PerfScope scope("forward", &stats);
    throw std::runtime_error("test");
  } catch (const std::runtime_error&) {
    time(stats, "cleanup", 1);
  }
  EXPECT_EQ(stats.sections().at("forward").host_ms.count(), 0);
  EXPECT_EQ(stats.sections().at("cleanup").host_ms.count(), 1);
}

// A scope inside of what unwinding runs ends as usual.
TEST_F(PerfTimerTest, AScopeThatBeginsDuringUnwindingIsRecorded) {
  PerfStats stats(nullptr, clock());
  struct OnExit {
    PerfTimerTest* test;
    PerfStats* stats;
    ~OnExit() { const PerfScope scope("cleanup", stats); }
  };
  try {
    const OnExit on_exit{this, &stats};
    throw std::runtime_error("test");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(stats.sections().at("cleanup").host_ms.count(), 1);
}

TEST_F(PerfTimerTest, WithoutStatsNothingHappens) {
  PerfTimer timer("total", nullptr);
  timer.record();
  timer.start();
  EXPECT_FALSE(timer.is_running());
  timer.stop();
  timer.record();
  const PerfScope scope("forward", nullptr);
}

TEST_F(PerfTimerTest, DeviceTimesComeInOrderWhenTheDeviceGetsThere) {
  PerfStats stats(std::make_unique<StandInClock>(times_), clock());
  times_.reached = 0;
  time(stats, "forward", 1, 10);
  time(stats, "backward", 1, 20);
  EXPECT_EQ(stats.pending(), 2);
  EXPECT_EQ(stats.sections().at("forward").device_ms.count(), 0);
  EXPECT_EQ(stats.sections().at("forward").host_ms.count(), 1);
  times_.reached = 2;  // the marks of forward
  stats.collect();
  EXPECT_EQ(stats.pending(), 1);
  EXPECT_EQ(stats.sections().at("forward").device_ms.last(), 10);
  EXPECT_EQ(stats.sections().at("backward").device_ms.count(), 0);
  EXPECT_EQ(times_.waits, 0);
  stats.report();
  EXPECT_EQ(times_.waits, 1);
  EXPECT_EQ(stats.sections().at("backward").device_ms.last(), 20);
}

TEST_F(PerfTimerTest, ADeviceThatFallsTooFarBehindLosesTimesOfTheDeviceOnly) {
  PerfStats stats(std::make_unique<StandInClock>(times_), clock());
  times_.reached = 0;
  for (int i = 0; i < 1003; ++i) time(stats, "forward", 1, 1);
  EXPECT_EQ(stats.pending(), 1000);
  EXPECT_EQ(stats.lost(), 3);
  stats.report();
  EXPECT_EQ(stats.sections().at("forward").host_ms.count(), 1003);
  EXPECT_EQ(stats.sections().at("forward").device_ms.count(), 1000);
}

TEST_F(PerfTimerTest, ReportsMeansInTheOrderOfTheStep) {
  PerfStats stats(std::make_unique<StandInClock>(times_), clock());
  time(stats, "own", 0.5, 0.25);
  time(stats, "forward", 1, 10);
  time(stats, "forward", 2, 11);
  time(stats, "train_step_total", 12.5, 30);
  EXPECT_EQ(stats.report(),
            "section             count    host ms  device ms\n"
            "train_step_total        1      12.50      30.00\n"
            "forward                 2       1.50      10.50\n"
            "own                     1       0.50       0.25\n");
}

TEST_F(PerfTimerTest, ReportsWithoutDeviceAndWithoutSections) {
  PerfStats stats(nullptr, clock());
  EXPECT_EQ(stats.report(), "no section was timed\n");
  time(stats, "a", 2);
  EXPECT_EQ(stats.report(),
            "section    count    host ms  device ms\n"
            "a              1       2.00          -\n");
}

TEST_F(PerfTimerTest, StartsAgainWhileATimerRuns) {
  PerfStats stats(std::make_unique<StandInClock>(times_), clock());
  times_.reached = 0;
  time(stats, "forward", 1, 1);
  PerfTimer total("total", &stats);
  total.start();
  stats.reset();
  EXPECT_EQ(stats.pending(), 0);
  EXPECT_EQ(stats.report(), "no section was timed\n");
  pass(5);
  total.stop();
  total.record();
  EXPECT_NEAR(stats.sections().at("total").host_ms.sum(), 5, 1e-6);
  EXPECT_EQ(stats.sections().at("forward").host_ms.count(), 0);
}

TEST_F(PerfTimerTest, NamesAllSectionsOfTheStandardStep) {
  const std::vector<std::string_view> expected = {"train_step_total", "read_sample",   "forward",  "loss_compute",
                                                  "loss_all_reduce",  "meters_update", "backward", "optimizer_step"};
  EXPECT_TRUE(std::equal(kStepSections.begin(), kStepSections.end(), expected.begin(), expected.end()));
}

// The median of blocks, which what else runs on the machine hardly moves.
TEST(PerfTimerCostTest, IsWellBelowAMicrosecond) {
  PerfStats stats;
  std::vector<double> ns;
  for (int block = 0; block < 51; ++block) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 1000; ++i) const PerfScope scope("optimizer_step", &stats);
    ns.push_back(std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count() / 1000);
  }
  std::nth_element(ns.begin(), ns.begin() + 25, ns.end());
  RecordProperty("nanoseconds", std::to_string(ns[25]));
  EXPECT_LT(ns[25], 500);
}

TEST(DeviceClockTest, IsNoneForTheCpu) { EXPECT_EQ(make_device_clock(c10::Device(c10::kCPU)), nullptr); }

}  // namespace perf_timer_test
}  // namespace lockstep::engine
