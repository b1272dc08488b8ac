// SPDX-License-Identifier: BSD-3-Clause
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <stdexcept>

#include "fake_gpu/fake_gpu.hpp"

namespace lockstep::fake_gpu {
namespace stubs_test {

/// A function of a library in the folder of the fake GPU, with the version that LibTorch asks for.
template <class Function>
Function* function_of(const char* library, const char* name, const char* version) {
  void* const opened = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) throw std::runtime_error(dlerror());
  void* const function = dlvsym(opened, name, version);
  if (function == nullptr) throw std::runtime_error(dlerror());
  return reinterpret_cast<Function*>(function);
}

TEST(StubsTest, HandlesAndVersionsAreGiven) {
  void* handle = nullptr;
  EXPECT_EQ(function_of<int(void**)>("libcublas.so.13", "cublasCreate_v2", "libcublas.so.13")(&handle), 0);
  EXPECT_NE(handle, nullptr);
  EXPECT_EQ(function_of<std::size_t()>("libcudnn.so.9", "cudnnGetVersion", "libcudnn.so.9")(), 91900U);
}

TEST(StubsTest, AFunctionThatOnlyDescribesSucceeds) {
  EXPECT_EQ(
      function_of<int(void*, void*)>("libcublas.so.13", "cublasSetStream_v2", "libcublas.so.13")(nullptr, nullptr), 0);
  function_of<int()>("libnvshmem_host.so.3", "nvshmemid_init_status", "NVSHMEM");  // the version has another name
}

TEST(StubsDeathTest, AFunctionThatComputesNamesItself) {
  const auto multiply = [] { function_of<int()>("libcublas.so.13", "cublasSgemm_v2", "libcublas.so.13")(); };
  EXPECT_EXIT(multiply(), ::testing::ExitedWithCode(kRaceExit), "fake GPU: cublasSgemm_v2 of libcublas.so.13");
  const auto copy = [] { function_of<int()>("libcublas.so.13", "cublasSetVectorAsync", "libcublas.so.13")(); };
  EXPECT_EXIT(copy(), ::testing::ExitedWithCode(kRaceExit), "fake GPU: cublasSetVectorAsync of libcublas.so.13");
}

}  // namespace stubs_test
}  // namespace lockstep::fake_gpu
