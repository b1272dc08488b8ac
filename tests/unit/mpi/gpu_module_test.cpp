// SPDX-License-Identifier: BSD-3-Clause
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include "mpi/gpu/gpu.hpp"
#include "mpi/gpu/module_api.hpp"

namespace lockstep::mpi {
namespace gpu_module_test {

/// The answer that the module of this build says to a program of this version, in a process of its own: what it loads
/// stays.
/// @return  a text that begins with "fault: ", or "opened"
std::string answer(std::uint32_t version) {
  int channel[2];
  if (pipe(channel) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    std::string said;
    void* const module = dlopen("lockstep_gpu.so", RTLD_NOW | RTLD_LOCAL);
    const auto open = module == nullptr ? nullptr : reinterpret_cast<gpu::OpenModule>(dlsym(module, gpu::kOpenModule));
    if (open == nullptr) {
      said = std::string("not loaded: ") + dlerror();
    } else {
      gpu::Fault fault = nullptr;
      said = open(version, &fault) != nullptr ? "opened" : std::string("fault: ") + fault;
    }
    const bool is_told = write(channel[1], said.data(), said.size()) == static_cast<ssize_t>(said.size());
    _exit(is_told ? 0 : 1);
  }
  close(channel[1]);
  std::string said(4096, '\0');
  const ssize_t count = read(channel[0], said.data(), said.size());
  close(channel[0]);
  int status = 0;
  waitpid(child, &status, 0);
  said.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  return WIFEXITED(status) ? said : "crashed: " + said;
}

class GpuModuleTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!LOCKSTEP_HAS_GPU_MODULE) GTEST_SKIP() << "lockstep_gpu.so is not part of this build";
  }
};

TEST_F(GpuModuleTest, SaysWhatIsWrongWhereThereIsNoGpu) {
  if (probe_gpu_driver().gpus > 0) GTEST_SKIP() << "here is a GPU";
  const std::string said = answer(gpu::kApiVersion);
  EXPECT_TRUE(said.starts_with("fault: cudaGetDeviceCount: ")) << said;
  EXPECT_NE(said.find("driver"), std::string::npos) << said;
}

TEST_F(GpuModuleTest, RefusesAProgramOfAnotherVersion) {
  EXPECT_EQ(answer(gpu::kApiVersion + 1),
            "fault: lockstep_gpu.so implements version 4 of its interface, but the program needs version 5; build both "
            "from the same sources");
}

TEST(GpuDriverTest, IsAskedWithoutTheModule) {
  const GpuDriver driver = probe_gpu_driver();
  EXPECT_EQ(driver.gpus > 0, driver.fault.empty()) << driver.fault;
  EXPECT_EQ(dlopen("lockstep_gpu.so", RTLD_NOW | RTLD_NOLOAD), nullptr);
}

}  // namespace gpu_module_test
}  // namespace lockstep::mpi
