// SPDX-License-Identifier: BSD-3-Clause
// GPU support must not touch a run on CPUs; what happens on a GPU is in tests/gpu.
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "mpi/gpu/gpu.hpp"
#include "small_run.hpp"
#include "support/program.hpp"

namespace lockstep::engine {
namespace device_test {

const Settings kShort = {{"model.name", "mlp"}, {"train.max_steps", "3"}, {"data.workers", "0"}};

Settings with_device(const std::string& device) {
  Settings settings = kShort;
  settings.emplace_back("run.device", device);
  return settings;
}

class DeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (mpi::probe_gpu_driver().gpus > 0) GTEST_SKIP() << "here is a GPU";
  }
  mpi::Communicator world_ = mpi::Communicator::world();
};

TEST_F(DeviceTest, ARunOnTheCpuLoadsNothingOfCuda) {
  for (const char* const device : {"auto", "cpu"}) {
    SmallRun run(world_, with_device(device));
    run.trainer.train();
    EXPECT_TRUE(run.resources.device.is_cpu());
    std::ifstream file("/proc/self/maps");
    const std::string maps(std::istreambuf_iterator<char>(file), {});
    EXPECT_NE(maps.find("libtorch_cpu"), std::string::npos);
    for (const char* const library : {"libcuda.so", "libtorch_cuda", "libc10_cuda", "libnccl", "lockstep_gpu"}) {
      EXPECT_EQ(maps.find(library), std::string::npos) << library;
    }
  }
}

TEST_F(DeviceTest, CudaWithoutAGpuIsRefusedOnEveryRank) {
  std::string text;
  try {
    SmallRun run(world_, with_device("cuda"));
  } catch (const ConfigError& error) {
    text = error.what();
    EXPECT_TRUE(error.is_agreed());
  }
  EXPECT_NE(text.find("run.device=cuda: "), std::string::npos) << text;
  EXPECT_NE(text.find("or use run.device=cpu"), std::string::npos) << text;
}

// The helper opens the module after all that a run does before it chooses a device.
TEST_F(DeviceTest, TheModuleIsOpenedBeforeLibTorchSettlesWhetherThereIsCuda) {
  if (!LOCKSTEP_HAS_GPU_MODULE) GTEST_SKIP() << "lockstep_gpu.so is not part of this build";
  if (!world_.is_root()) return;
  const testing::ProgramResult outcome = testing::run_shell(LOCKSTEP_CUDA_HELPER);
  EXPECT_EQ(outcome.output, "LibTorch knows CUDA\n");
}

}  // namespace device_test
}  // namespace lockstep::engine
