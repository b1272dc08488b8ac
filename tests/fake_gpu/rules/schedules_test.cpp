// SPDX-License-Identifier: BSD-3-Clause
// When work runs: each schedule is an order that a GPU may take.
#include "fake_gpu/rules/support.hpp"

namespace lockstep::fake_gpu {
namespace schedules_test {

constexpr auto kMoment = std::chrono::milliseconds(100);

class Schedules : public FakeGpuRule {
 protected:
  void queue(cudaStream_t stream, std::atomic<bool>& has_run) {
    EXPECT_EQ(enqueue(stream, "work", {}, [&has_run] { has_run = true; }), cudaSuccess);
  }

  std::atomic<bool> has_run_ = false;
  std::atomic<bool> has_run_elsewhere_ = false;
  const TestStream stream_;
  const TestStream other_;
};

TEST_F(Schedules, ThreadsRunWorkWithoutBeingAsked) {
  if (!is_schedule("threads")) GTEST_SKIP() << "this is another schedule";
  queue(stream_, has_run_);
  EXPECT_TRUE(comes_true([&] { return has_run_.load(); }));
}

TEST_F(Schedules, ThreadsRunStreamsAtTheSameTime) {
  if (!is_schedule("threads")) GTEST_SKIP() << "this is another schedule";
  Barrier barrier;
  barrier.queue(stream_);
  queue(stream_, has_run_);
  queue(other_, has_run_elsewhere_);
  EXPECT_TRUE(comes_true([&] { return has_run_elsewhere_.load(); }));
  EXPECT_FALSE(has_run_);
  barrier.open();
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST_F(Schedules, EagerWorkHasRunWhenTheCallReturns) {
  if (!is_schedule("eager")) GTEST_SKIP() << "this is another schedule";
  queue(stream_, has_run_);
  EXPECT_TRUE(has_run_);
}

TEST_F(Schedules, LazyWorkRunsWhenTheHostWaits) {
  if (!is_schedule("lazy")) GTEST_SKIP() << "this is another schedule";
  queue(stream_, has_run_);
  queue(other_, has_run_elsewhere_);
  std::this_thread::sleep_for(kMoment);
  EXPECT_FALSE(has_run_);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_TRUE(has_run_);
  EXPECT_FALSE(has_run_elsewhere_);  // nobody needs it
  EXPECT_EQ(cudaStreamSynchronize(other_), cudaSuccess);
}

TEST_F(Schedules, LazyWorkRunsWhenTheHostAsks) {
  if (!is_schedule("lazy")) GTEST_SKIP() << "this is another schedule";
  queue(stream_, has_run_);
  EXPECT_TRUE(comes_true([&] { return cudaStreamQuery(stream_) == cudaSuccess; }));
  EXPECT_TRUE(has_run_);
  cudaGetLastError();
}

TEST_F(Schedules, LazyWorkRunsWhatItWaitsFor) {
  if (!is_schedule("lazy")) GTEST_SKIP() << "this is another schedule";
  queue(other_, has_run_elsewhere_);
  follow(stream_, other_);
  queue(stream_, has_run_);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_TRUE(has_run_elsewhere_);
  EXPECT_TRUE(has_run_);
}

// A GPU begins at some time, even where the host waits for a peer instead of for it.
TEST_F(Schedules, LazyWorkRunsInTheEnd) {
  queue(stream_, has_run_);
  EXPECT_TRUE(comes_true([&] { return has_run_.load(); }));
}

TEST_F(Schedules, DelaysKeepTheOrder) {
  expect_passes({{"FAKE_GPU_DELAY_US", "2000"}, {"FAKE_GPU_SEED", "7"}}, [] {
    const TestStream first;
    const TestStream second;
    const Floats values;
    fill(first, values, 1);
    for (int round = 0; round < 10; ++round) {
      follow(second, first);
      add(second, values, values);
      follow(first, second);
    }
    EXPECT_EQ(values.values(), all(1024));
  });
}

TEST_F(Schedules, AnUnknownScheduleIsRefused) {
  const std::string before = std::getenv("FAKE_GPU_SCHEDULE") != nullptr ? std::getenv("FAKE_GPU_SCHEDULE") : "";
  setenv("FAKE_GPU_SCHEDULE", "sometimes", 1);
  expect_broken("FAKE_GPU_SCHEDULE=sometimes", [] { const Floats values; });
  before.empty() ? unsetenv("FAKE_GPU_SCHEDULE") : setenv("FAKE_GPU_SCHEDULE", before.c_str(), 1);
}

}  // namespace schedules_test
}  // namespace lockstep::fake_gpu
