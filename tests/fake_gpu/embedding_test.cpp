// SPDX-License-Identifier: BSD-3-Clause
// A C program that trains and predicts on arrays in the memory of the fake GPU.
#include <gtest/gtest.h>

#include <cstdlib>

#include "fake_run.hpp"

namespace lockstep {
namespace fake_gpu_embedding_test {

/// Runs a case of tests/fake_gpu/gpu_caller.c in each order in which streams may run.
void expect_done(const std::string& name) {
  const char* const folder = std::getenv("LOCKSTEP_BINARY_DIR");
  const std::string program = std::string(folder != nullptr ? folder : ".") + "/tests/fake_gpu/gpu_caller ";
  for (const std::string schedule : {"threads", "lazy", "eager"}) {
    const testing::ProgramResult outcome = testing::run_shell("FAKE_GPU_DELAY_US=100 FAKE_GPU_SCHEDULE=" + schedule +
                                                              " " + testing::on_fake_gpu() + program + name);
    EXPECT_EQ(outcome.exit_code, 0) << schedule;
    EXPECT_EQ(outcome.output, "done\n") << schedule;
  }
}

TEST(GpuCallerTest, AStreamOrdersArraysOfTheGpu) { expect_done("stream"); }
TEST(GpuCallerTest, TheDefaultStreamOrdersThem) { expect_done("default_stream"); }
TEST(GpuCallerTest, ArraysHaveAnyTypeAndStridesOfATensor) { expect_done("layouts"); }
TEST(GpuCallerTest, WrongArraysGetASentence) { expect_done("refusals"); }

}  // namespace fake_gpu_embedding_test
}  // namespace lockstep
