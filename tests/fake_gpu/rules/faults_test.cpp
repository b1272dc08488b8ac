// SPDX-License-Identifier: BSD-3-Clause
// Faults on request, and calls that end the process because a real GPU is needed.
#include <dlfcn.h>

#include "fake_gpu/rules/support.hpp"

extern "C" {
void** __cudaRegisterFatBinary(void* binary);
void __cudaRegisterFunction(void** handle, const char* host, char* device, const char* name, int threads, void* tid,
                            void* bid, void* block, void* grid, int* size);
}

namespace lockstep::fake_gpu {
namespace faults_test {

class FaultOnRequest : public FakeGpuRule {
 protected:
  /// Whether an allocation of `bytes` succeeds.
  static bool allocates(std::size_t bytes) {
    void* memory = nullptr;
    const cudaError_t result = cudaMalloc(&memory, bytes);
    EXPECT_TRUE(result == cudaSuccess || result == cudaErrorMemoryAllocation);
    if (result != cudaSuccess) cudaGetLastError();
    return result == cudaSuccess;
  }
  static cudaError_t launch(cudaStream_t stream) {
    return enqueue(stream, "kernel", {}, [] {});
  }
};

// LibTorch's allocator frees its blocks and tries again.
TEST_F(FaultOnRequest, AnAllocationFailsAndSoDoesTheOneThatRepeatsIt) {
  expect_passes({}, [] {
    plan_fault({.fault = PlannedFault::out_of_memory, .occurrence = 2});
    EXPECT_TRUE(allocates(16));
    EXPECT_FALSE(allocates(64));
    EXPECT_FALSE(allocates(64));
    EXPECT_TRUE(allocates(64));
  });
}

TEST_F(FaultOnRequest, PageLockedMemoryIsRefusedOnce) {
  expect_passes({}, [] {
    plan_fault({.fault = PlannedFault::host_memory, .occurrence = 1});
    void* memory = nullptr;
    EXPECT_EQ(cudaHostAlloc(&memory, 16, cudaHostAllocDefault), cudaErrorMemoryAllocation);
    EXPECT_EQ(memory, nullptr);
    cudaGetLastError();
    EXPECT_EQ(cudaHostAlloc(&memory, 16, cudaHostAllocDefault), cudaSuccess);
  });
}

TEST_F(FaultOnRequest, TheEnvironmentPlansAFault) {
  expect_passes({{"FAKE_GPU_FAULT", "out_of_memory:1"}}, [] { EXPECT_FALSE(allocates(16)); });
}

TEST_F(FaultOnRequest, AFaultIsOfOneRank) {
  expect_passes({{"FAKE_GPU_FAULT", "out_of_memory:1"}, {"FAKE_GPU_FAULT_RANK", "1"}, {"OMPI_COMM_WORLD_RANK", "1"}},
                [] { EXPECT_FALSE(allocates(16)); });
  expect_passes({{"FAKE_GPU_FAULT", "out_of_memory:1"}, {"FAKE_GPU_FAULT_RANK", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}},
                [] { EXPECT_TRUE(allocates(16)); });
}

TEST_F(FaultOnRequest, AFaultThatCannotBeReadEndsTheProcess) {
  setenv("FAKE_GPU_FAULT", "out_of_memory:soon", 1);
  expect_broken("FAKE_GPU_FAULT", [] { allocates(16); });
  unsetenv("FAKE_GPU_FAULT");
}

TEST_F(FaultOnRequest, ALaunchFailsForGood) {
  expect_passes({}, [] {
    const TestStream stream;
    plan_fault({.fault = PlannedFault::sticky, .occurrence = 2});
    EXPECT_EQ(launch(stream), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    launch(stream);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorAssert);
    EXPECT_EQ(cudaGetLastError(), cudaErrorAssert);
    EXPECT_EQ(cudaGetLastError(), cudaErrorAssert);  // taking it changes nothing
    EXPECT_EQ(launch(stream), cudaErrorAssert);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorAssert);
    end();
  });
}

TEST_F(FaultOnRequest, WorkThatThrowsIsADeviceError) {
  expect_passes({}, [] {
    const TestStream stream;
    enqueue(stream, "assertion", {}, [] { throw std::runtime_error("index out of range"); });
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorAssert);
    EXPECT_EQ(launch(stream), cudaErrorAssert);
    end();
  });
}

TEST_F(FaultOnRequest, EventsOfAKindAreCounted) {
  expect_passes({}, [] {
    double seconds = 0;
    plan_fault({.fault = PlannedFault::nccl_late, .occurrence = 3, .seconds = 1.5});
    EXPECT_FALSE(is_due(PlannedFault::nccl_late, &seconds));
    EXPECT_FALSE(is_due(PlannedFault::nccl_exit));  // another kind does not count
    EXPECT_FALSE(is_due(PlannedFault::nccl_late, &seconds));
    EXPECT_TRUE(is_due(PlannedFault::nccl_late, &seconds));
    EXPECT_EQ(seconds, 1.5);
    EXPECT_FALSE(is_due(PlannedFault::nccl_late, &seconds));  // once
  });
}

TEST_F(FaultOnRequest, TheDriverFails) {
  const auto probe = [](int expected) {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW);
    ASSERT_NE(library, nullptr) << dlerror();
    const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(library, "cuInit"));
    ASSERT_NE(init, nullptr);
    EXPECT_EQ(init(0), expected);
  };
  expect_passes({}, [&] { probe(0); });
  expect_passes({{"FAKE_GPU_DRIVER", "802"}}, [&] { probe(802); });
  expect_passes({{"FAKE_GPU_DRIVER", "803"}}, [&] { probe(803); });
}

// An operator that runs no kernel of a CPU would silently compute nothing.
TEST_F(FaultOnRequest, AKernelOfARealGpuEndsTheProcess) {
  expect_broken("the_kernel", [] {
    static const char function = 0;
    char name[] = "the_kernel";
    __cudaRegisterFunction(__cudaRegisterFatBinary(nullptr), &function, name, name, -1, nullptr, nullptr, nullptr,
                           nullptr, nullptr);
    cudaLaunchKernel(&function, dim3(1), dim3(1), nullptr, 0, nullptr);
  });
}

TEST_F(FaultOnRequest, DevicesAreAsManyAsAskedFor) {
  expect_passes({{"FAKE_GPU_DEVICES", "3"}}, [] {
    int count = 0;
    EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
    EXPECT_EQ(count, 3);
    char first[32] = {};
    char second[32] = {};
    EXPECT_EQ(cudaDeviceGetPCIBusId(first, sizeof first, 0), cudaSuccess);
    EXPECT_EQ(cudaDeviceGetPCIBusId(second, sizeof second, 2), cudaSuccess);
    EXPECT_STRNE(first, second);
    EXPECT_EQ(cudaSetDevice(3), cudaErrorInvalidDevice);
  });
  expect_passes({{"FAKE_GPU_DEVICES", "0"}}, [] {
    int count = 1;
    EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
    EXPECT_EQ(count, 0);
  });
}

}  // namespace faults_test
}  // namespace lockstep::fake_gpu
