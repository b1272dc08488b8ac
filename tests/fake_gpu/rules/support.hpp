// SPDX-License-Identifier: BSD-3-Clause
// Small programs for the fake GPU. A kernel is a function of the host that declares which memory it touches.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "fake_gpu/fake_gpu.hpp"

namespace lockstep::fake_gpu {

/// FAKE_GPU_SCHEDULE of this process.
inline bool is_schedule(const std::string& name) {
  const char* const value = std::getenv("FAKE_GPU_SCHEDULE");
  return name == (value != nullptr ? value : "threads");
}

/// A rule of CUDA. Expectations about ends of processes run in a process of their own, which begins anew.
class FakeGpuRule : public ::testing::Test {
 protected:
  FakeGpuRule() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  /// Expects that the fake GPU ends the process and prints `sentence` (a regular expression).
  static void expect_broken(const std::string& sentence, const std::function<void()>& body) {
    EXPECT_EXIT(body(), ::testing::ExitedWithCode(kRaceExit), "fake GPU: .*" + sentence);
  }

  /// Ends a process of `expect_passes`, without freeing what a device error keeps from being freed.
  [[noreturn]] static void end() {
    const ::testing::TestResult& result = *::testing::UnitTest::GetInstance()->current_test_info()->result();
    for (int i = 0; i < result.total_part_count(); ++i) {  // GoogleTest prints nothing here
      std::fprintf(stderr, "%s\n", result.GetTestPartResult(i).summary());
    }
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }

  /// Expects that `body` passes in a process that begins with these variables.
  static void expect_passes(const std::vector<std::pair<std::string, std::string>>& environment,
                            const std::function<void()>& body) {
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    const auto run = [&body] {
      body();
      end();
    };
    EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "");
    for (const auto& [name, value] : environment) unsetenv(name.c_str());
  }
};

class TestStream {
 public:
  explicit TestStream(unsigned flags = cudaStreamNonBlocking) {
    EXPECT_EQ(cudaStreamCreateWithPriority(&handle_, flags, 0), cudaSuccess);
  }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;
  ~TestStream() { cudaStreamDestroy(handle_); }

  operator cudaStream_t() const { return handle_; }  // NOLINT: used as one

 private:
  cudaStream_t handle_ = nullptr;
};

class TestEvent {
 public:
  explicit TestEvent(unsigned flags = cudaEventDisableTiming) {
    EXPECT_EQ(cudaEventCreateWithFlags(&handle_, flags), cudaSuccess);
  }
  TestEvent(const TestEvent&) = delete;
  TestEvent& operator=(const TestEvent&) = delete;
  ~TestEvent() { cudaEventDestroy(handle_); }

  operator cudaEvent_t() const { return handle_; }  // NOLINT: used as one

 private:
  cudaEvent_t handle_ = nullptr;
};

/// Float32 values in device memory.
class Floats {
 public:
  explicit Floats(std::size_t count = 4) : count_(count) {
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&begin_), bytes()), cudaSuccess);
  }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;
  ~Floats() { cudaFree(begin_); }

  float* begin() const { return begin_; }
  std::size_t count() const { return count_; }
  std::size_t bytes() const { return count_ * sizeof(float); }
  Range read() const { return {begin_, bytes(), false}; }
  Range written() const { return {begin_, bytes(), true}; }

  /// The values once the device has done all its work.
  std::vector<float> values() const {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    std::vector<float> copy(count_);
    EXPECT_EQ(cudaMemcpy(copy.data(), begin_, bytes(), cudaMemcpyDeviceToHost), cudaSuccess);
    return copy;
  }

 private:
  std::size_t count_;
  float* begin_ = nullptr;
};

/// Float32 values in page-locked memory of the host.
class PinnedFloats {
 public:
  explicit PinnedFloats(std::size_t count = 4) : count_(count) {
    EXPECT_EQ(cudaHostAlloc(reinterpret_cast<void**>(&begin_), bytes(), cudaHostAllocDefault), cudaSuccess);
  }
  PinnedFloats(const PinnedFloats&) = delete;
  PinnedFloats& operator=(const PinnedFloats&) = delete;
  ~PinnedFloats() { cudaFreeHost(begin_); }

  float* begin() const { return begin_; }
  std::size_t bytes() const { return count_ * sizeof(float); }
  float& operator[](std::size_t index) const { return begin_[index]; }

 private:
  std::size_t count_;
  float* begin_ = nullptr;
};

/// Queues a kernel that writes `value` everywhere.
inline void fill(cudaStream_t stream, const Floats& floats, float value, const char* name = "fill") {
  const auto work = [begin = floats.begin(), count = floats.count(), value] {
    auto* const target = static_cast<float*>(address(begin));
    std::fill(target, target + count, value);
  };
  EXPECT_EQ(enqueue(stream, name, {floats.written()}, work), cudaSuccess);
}

/// Like `fill`, but not at once.
inline void fill_slowly(cudaStream_t stream, const Floats& floats, float value) {
  const auto work = [begin = floats.begin(), count = floats.count(), value] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    auto* const target = static_cast<float*>(address(begin));
    std::fill(target, target + count, value);
  };
  EXPECT_EQ(enqueue(stream, "fill slowly", {floats.written()}, work), cudaSuccess);
}

/// Queues a kernel that adds `from` to `target`.
inline void add(cudaStream_t stream, const Floats& target, const Floats& from, const char* name = "add") {
  const auto work = [to_begin = target.begin(), from_begin = from.begin(), count = target.count()] {
    auto* const sums = static_cast<float*>(address(to_begin));
    const auto* const values = static_cast<const float*>(address(from_begin));
    for (std::size_t i = 0; i < count; ++i) sums[i] += values[i];
  };
  EXPECT_EQ(enqueue(stream, name, {target.read(), target.written(), from.read()}, work), cudaSuccess);
}

/// Queues a kernel that only reads.
inline void look(cudaStream_t stream, const Floats& floats, const char* name = "look") {
  EXPECT_EQ(enqueue(stream, name, {floats.read()}, [] {}), cudaSuccess);
}

/// Has `later` wait for what `earlier` has now.
inline void follow(cudaStream_t later, cudaStream_t earlier) {
  const TestEvent event;
  EXPECT_EQ(cudaEventRecord(event, earlier), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(later, event, 0), cudaSuccess);
}

inline std::vector<float> all(float value, std::size_t count = 4) { return std::vector<float>(count, value); }

/// Work that waits until it is let through: an operation that takes as long as a test wants. Not for the schedule
/// eager, where queueing would not return.
class Barrier {
 public:
  Barrier() = default;
  Barrier(const Barrier&) = delete;
  Barrier& operator=(const Barrier&) = delete;
  ~Barrier() { open(); }

  void queue(cudaStream_t stream) {
    const auto work = [open = is_open_] {
      while (!*open) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    EXPECT_EQ(enqueue(stream, "barrier", {}, work), cudaSuccess);
  }
  void open() { *is_open_ = true; }

 private:
  std::shared_ptr<std::atomic<bool>> is_open_ = std::make_shared<std::atomic<bool>>(false);
};

/// Whether `condition` becomes true soon.
inline bool comes_true(const std::function<bool()>& condition) {
  for (int i = 0; i < 5000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace lockstep::fake_gpu
