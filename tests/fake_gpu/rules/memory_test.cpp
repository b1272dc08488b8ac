// SPDX-License-Identifier: BSD-3-Clause
// Memory: what is in it, who may access it, how much there is, and copies.
#include <cmath>
#include <csignal>
#include <cstring>
#include <sys/wait.h>

#include "fake_gpu/rules/support.hpp"

namespace lockstep::fake_gpu {
namespace memory_test {

class Memory : public FakeGpuRule {};

cudaMemoryType type_of(const void* memory) {
  cudaPointerAttributes attributes{};
  EXPECT_EQ(cudaPointerGetAttributes(&attributes, memory), cudaSuccess);
  return attributes.type;
}

TEST_F(Memory, NewDeviceMemoryIsNotANumber) {
  const Floats values(1000);
  for (const float value : values.values()) EXPECT_TRUE(std::isnan(value));
}

TEST_F(Memory, MemoryOfTheDeviceIsAlignedAsThatOfAGpu) {
  const Floats small(1);
  const Floats odd(3);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(small.begin()) % 512, 0);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(odd.begin()) % 512, 0);
}

TEST_F(Memory, TheHostCannotReadDeviceMemory) {
  const auto read = [] {
    const Floats values;
    _exit(static_cast<int>(*static_cast<const volatile float*>(values.begin())));
  };
  EXPECT_EXIT(read(), ::testing::KilledBySignal(SIGSEGV), "");
}

TEST_F(Memory, TheHostCannotWriteDeviceMemory) {
  const auto write = [] {
    const Floats values;
    *static_cast<volatile float*>(values.begin()) = 1;
    _exit(0);
  };
  EXPECT_EXIT(write(), ::testing::KilledBySignal(SIGSEGV), "");
}

TEST_F(Memory, WorkCannotUseFreedMemory) {
  expect_broken("'look' reads .*not allocated", [] {
    const TestStream stream;
    float* freed = nullptr;
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&freed), 16), cudaSuccess);
    EXPECT_EQ(cudaFree(freed), cudaSuccess);
    enqueue(stream, "look", {{freed, 16, false}}, [] {});
  });
}

TEST_F(Memory, WorkCannotUseMemoryBeyondTheEnd) {
  expect_broken("'look' reads .*not allocated", [] {
    const TestStream stream;
    const Floats values;
    const std::size_t page_bytes = 4096;
    enqueue(stream, "look", {{values.begin(), values.bytes() + page_bytes, false}}, [] {});
  });
}

TEST_F(Memory, MemoryIsFreedOnce) {
  float* memory = nullptr;
  EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&memory), 16), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
  cudaGetLastError();
}

TEST_F(Memory, MemoryIsLimited) {
  expect_passes({{"FAKE_GPU_MEMORY_MB", "64"}}, [] {
    constexpr std::size_t kMegabyte = 1 << 20;
    std::size_t free_bytes = 0;
    std::size_t total = 0;
    EXPECT_EQ(cudaMemGetInfo(&free_bytes, &total), cudaSuccess);
    EXPECT_EQ(total, 64 * kMegabyte);
    void* most = nullptr;
    void* rest = nullptr;
    EXPECT_EQ(cudaMalloc(&most, 48 * kMegabyte), cudaSuccess);
    EXPECT_EQ(cudaMalloc(&rest, 17 * kMegabyte), cudaErrorMemoryAllocation);
    EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);  // the device is as well as before
    EXPECT_EQ(cudaMalloc(&rest, 8 * kMegabyte), cudaSuccess);
    EXPECT_EQ(cudaMemGetInfo(&free_bytes, &total), cudaSuccess);
    EXPECT_LE(free_bytes, 8 * kMegabyte);
    EXPECT_EQ(cudaFree(most), cudaSuccess);
    EXPECT_EQ(cudaMalloc(&most, 50 * kMegabyte), cudaSuccess);
  });
}

TEST_F(Memory, MemoryOfTheHostIsNotLimited) {
  expect_passes({{"FAKE_GPU_MEMORY_MB", "1"}}, [] { const PinnedFloats floats(1 << 20); });
}

// Works as an allocator does that keeps blocks, and does not know of the second stream (record_stream).
TEST_F(Memory, MemoryIsNotUsedAgainOnAnotherStreamTooEarly) {
  expect_broken("'new owner' writes .*'old owner' (reads|writes)", [] {
    const TestStream old_stream;
    const TestStream new_stream;
    const Floats block;
    fill(old_stream, block, 1, "old owner");
    fill(new_stream, block, 2, "new owner");
  });
}

TEST_F(Memory, MemoryThatWasFreedIsNewForAllStreams) {
  const TestStream first;
  const TestStream second;
  for (int round = 0; round < 4; ++round) {  // the address may be the same each time
    const Floats block;
    fill(round % 2 == 0 ? first : second, block, 1);
  }
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST_F(Memory, FreeingWaitsForWork) {
  const TestStream stream;
  std::atomic<bool> is_done = false;
  {
    const Floats block;
    const auto work = [&is_done] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      is_done = true;
    };
    EXPECT_EQ(enqueue(stream, "slow", {block.read()}, work), cudaSuccess);
  }
  EXPECT_TRUE(is_done);
}

TEST_F(Memory, CopiesGoToTheDeviceAndBack) {
  const TestStream stream;
  const Floats values;
  const PinnedFloats target;
  const PinnedFloats from;
  for (std::size_t i = 0; i < 4; ++i) target[i] = static_cast<float>(i);
  EXPECT_EQ(cudaMemcpyAsync(values.begin(), target.begin(), target.bytes(), cudaMemcpyHostToDevice, stream),
            cudaSuccess);
  add(stream, values, values);
  EXPECT_EQ(cudaMemcpyAsync(from.begin(), values.begin(), from.bytes(), cudaMemcpyDeviceToHost, stream), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(from[i], 2 * static_cast<float>(i));
}

TEST_F(Memory, CopiesOnTheDeviceAndSets) {
  const TestStream stream;
  const Floats from;
  const Floats target;
  fill_slowly(stream, from, 3);
  EXPECT_EQ(cudaMemcpyAsync(target.begin(), from.begin(), 8, cudaMemcpyDeviceToDevice, stream), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(target.begin() + 2, 0, 8, stream), cudaSuccess);
  EXPECT_EQ(target.values(), (std::vector<float>{3, 3, 0, 0}));
}

TEST_F(Memory, TheSourceOfAPageableCopyMayChangeAtOnce) {
  const TestStream stream;
  const Floats values;
  std::vector<float> source = all(5);
  EXPECT_EQ(cudaMemcpyAsync(values.begin(), source.data(), 16, cudaMemcpyHostToDevice, stream), cudaSuccess);
  source = all(6);
  EXPECT_EQ(values.values(), all(5));
}

TEST_F(Memory, APageableCopyToTheHostIsCompleteWhenItReturns) {
  const TestStream stream;
  const Floats values;
  std::vector<float> target = all(0);
  fill_slowly(stream, values, 5);
  EXPECT_EQ(cudaMemcpyAsync(target.data(), values.begin(), 16, cudaMemcpyDeviceToHost, stream), cudaSuccess);
  EXPECT_EQ(target, all(5));
}

TEST_F(Memory, TheSourceOfAPinnedCopyMustStay) {
  expect_broken("'refill' writes .*cop", [] {
    const TestStream stream;
    const Floats values;
    const PinnedFloats source;
    EXPECT_EQ(cudaMemcpyAsync(values.begin(), source.begin(), source.bytes(), cudaMemcpyHostToDevice, stream),
              cudaSuccess);
    note_host_access("refill", {source.begin(), source.bytes(), true});
  });
}

TEST_F(Memory, TheTargetOfAPinnedCopyIsReadAfterAWait) {
  expect_broken("'print' reads .*cop", [] {
    const TestStream stream;
    const Floats values;
    const PinnedFloats target;
    fill(stream, values, 1);
    EXPECT_EQ(cudaMemcpyAsync(target.begin(), values.begin(), target.bytes(), cudaMemcpyDeviceToHost, stream),
              cudaSuccess);
    note_host_access("print", {target.begin(), target.bytes(), false});
  });
}

TEST_F(Memory, PinnedMemoryIsFreedAfterAWait) {
  expect_broken("'cudaFreeHost' writes .*cop", [] {
    const TestStream stream;
    const Floats values;
    const PinnedFloats source;
    EXPECT_EQ(cudaMemcpyAsync(values.begin(), source.begin(), source.bytes(), cudaMemcpyHostToDevice, stream),
              cudaSuccess);
  });
}

TEST_F(Memory, PinnedMemoryIsTheHostsAfterAWait) {
  const TestStream stream;
  const Floats values;
  const PinnedFloats target;
  fill_slowly(stream, values, 1);
  EXPECT_EQ(cudaMemcpyAsync(target.begin(), values.begin(), target.bytes(), cudaMemcpyDeviceToHost, stream),
            cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  note_host_access("print", {target.begin(), target.bytes(), false});
  EXPECT_EQ(target[3], 1);
}

TEST_F(Memory, TheDirectionOfACopyMustFitItsMemory) {
  const TestStream stream;
  const Floats values;
  std::vector<float> host = all(0);
  EXPECT_EQ(cudaMemcpyAsync(host.data(), host.data(), 8, cudaMemcpyHostToDevice, stream), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(values.begin(), host.data(), 8, cudaMemcpyDeviceToHost, stream), cudaErrorInvalidValue);
  cudaGetLastError();
}

TEST_F(Memory, PointersKnowTheirMemory) {
  const Floats values;
  const PinnedFloats pinned;
  const std::vector<float> pageable = all(0);
  EXPECT_EQ(type_of(values.begin() + 1), cudaMemoryTypeDevice);
  EXPECT_EQ(type_of(pinned.begin()), cudaMemoryTypeHost);
  EXPECT_EQ(type_of(pageable.data()), cudaMemoryTypeUnregistered);
}

TEST_F(Memory, MemoryOfTheHostCanBeRegistered) {
  alignas(4096) static char memory[8192];
  EXPECT_EQ(type_of(memory), cudaMemoryTypeUnregistered);
  EXPECT_EQ(cudaHostRegister(memory, sizeof memory, cudaHostRegisterDefault), cudaSuccess);
  EXPECT_EQ(cudaHostRegister(memory, sizeof memory, cudaHostRegisterDefault), cudaErrorHostMemoryAlreadyRegistered);
  EXPECT_EQ(type_of(memory + 5000), cudaMemoryTypeHost);
  EXPECT_EQ(cudaHostUnregister(memory), cudaSuccess);
  EXPECT_EQ(cudaHostUnregister(memory), cudaErrorHostMemoryNotRegistered);
  EXPECT_EQ(type_of(memory), cudaMemoryTypeUnregistered);
  cudaGetLastError();
}

}  // namespace memory_test
}  // namespace lockstep::fake_gpu
