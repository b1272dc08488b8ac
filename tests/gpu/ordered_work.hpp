// SPDX-License-Identifier: BSD-3-Clause
// Work that takes as long as a test wants, and accesses of the host that the fake GPU compares with queued work.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "fake_functions.hpp"
#include "fake_gpu/fake_gpu.hpp"
#include "gpu_test.hpp"

namespace lockstep::fake_gpu {

/// Queues work behind what the default stream has, and the current stream behind that work.
inline void queue(at::Device device, Work work) {
  static const auto enqueue_there = found<decltype(enqueue)>(
      "_ZN8lockstep8fake_gpu7enqueueEP11CUstream_stPKcSt6vectorINS0_5RangeESaIS6_EESt8functionIFvvEE");
  const c10::impl::VirtualGuardImpl streams(device.type());
  EXPECT_EQ(enqueue_there(nullptr, "work of a test", {}, std::move(work)), cudaSuccess);
  c10::Event queued(device.type());
  queued.record(streams.getDefaultStream(device));
  queued.block(streams.getStream(device));
}

/// The current stream comes to later work after a while. The host does not wait.
inline void delay(at::Device device) {
  queue(device, [] { std::this_thread::sleep_for(std::chrono::milliseconds(30)); });
}

/// The current stream comes to later work after `end`. Not for the schedule eager, where queueing would not return.
class Busy {
 public:
  explicit Busy(at::Device device) {
    queue(device, [is_over = is_over_] {
      while (!*is_over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
  }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;
  ~Busy() { end(); }
  void end() { *is_over_ = true; }

 private:
  std::shared_ptr<std::atomic<bool>> is_over_ = std::make_shared<std::atomic<bool>>(false);
};

/// Ends the process if queued work may still use this memory of the host.
inline void access_on_host(const void* memory, std::size_t bytes, bool is_write) {
  static const auto note =
      found<decltype(note_host_access)>("_ZN8lockstep8fake_gpu16note_host_accessEPKcRKNS0_5RangeE");
  note("a test", {memory, bytes, is_write});
}

/// Memory of the device as the host sees it, if the device has come so far.
inline const void* peek(const at::Tensor& on_device) {
  static const auto address_there = found<decltype(address)>("_ZN8lockstep8fake_gpu7addressEPKv");
  return address_there(on_device.const_data_ptr());
}

/// Whether `condition` becomes true within some seconds.
template <class Condition>
bool comes_true(const Condition& condition) {
  for (int i = 0; i < 5000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return condition();
}

/// Tests of the order of work, which the fake GPU alone shows: work that nothing orders ends the process.
class OrderTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped() && !is_here()) GTEST_SKIP() << "only the fake GPU finds work without an order";
  }

  /// The schedule eager does work in the call that queues it: nothing is ever under way.
  static bool is_eager() {
    const char* const schedule = std::getenv("FAKE_GPU_SCHEDULE");
    return schedule != nullptr && std::string(schedule) == "eager";
  }
  at::Device device() const { return device_->torch(); }
  at::Tensor on_device(double value, std::int64_t count = 4096) const {
    return at::full({count}, value, at::TensorOptions().dtype(at::kDouble).device(device()));
  }
  static at::Tensor on_host(double value, std::int64_t count = 4096) {
    return at::full({count}, value, at::TensorOptions().dtype(at::kDouble)).pin_memory();
  }
  static void expect_all(const at::Tensor& values, double expected) {
    EXPECT_EQ(values.min().item<double>(), expected);
    EXPECT_EQ(values.max().item<double>(), expected);
  }
};

}  // namespace lockstep::fake_gpu
