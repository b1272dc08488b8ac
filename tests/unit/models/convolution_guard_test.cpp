// SPDX-License-Identifier: BSD-3-Clause
// Nothing is written past the end of a tensor or a buffer of oneDNN: each one ends where memory begins that must not be
// touched. (The address sanitizer does not see what oneDNN does, which generates its code when it runs.)
#include <lockstep/models/functional.hpp>

#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

#include "core/numbers/processor_level.hpp"
#include "support/program.hpp"

namespace lockstep::models {
namespace convolution_guard_test {

/// Not only one page, since what goes wrong may skip some.
constexpr std::size_t kGuardBytes = 1 << 20;

/// Puts the end of each tensor and buffer before memory without access, and never frees it.
class GuardedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &leave, c10::kCPU};
    const auto page = static_cast<std::size_t>(getpagesize());
    const std::size_t used = (bytes + page - 1) / page * page;
    void* const memory = mmap(nullptr, used + kGuardBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    mprotect(static_cast<std::byte*>(memory) + used, kGuardBytes, PROT_NONE);
    void* const begin = static_cast<std::byte*>(memory) + used - bytes;
    return {begin, begin, &leave, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &leave; }
  void copy_data(void* target, const void* from, std::size_t bytes) const override { std::memcpy(target, from, bytes); }

 private:
  static void leave(void* /*memory*/) {}
};

void guard_new_memory() {
  static GuardedAllocator allocator;
  c10::SetCPUAllocator(&allocator, /*priority=*/255);
}

struct Case {
  at::MemoryFormat images;
  at::MemoryFormat weight;
  bool has_graph;
};

void compute_gradients(const Case& tested, std::int64_t channels) {
  const auto ones = [](at::IntArrayRef sizes, at::MemoryFormat format) {
    return at::empty(sizes, at::TensorOptions().memory_format(format)).fill_(1).requires_grad_();
  };
  const at::Tensor images = ones({2, channels, 8, 8}, tested.images);
  const at::Tensor weight = ones({16, channels, 1, 1}, tested.weight);
  const at::Tensor output = models::convolution(images, weight, {}, {.stride = 2});
  const auto gradients =
      torch::autograd::grad({output.square().sum()}, {images, weight}, {}, /*retain_graph=*/true, tested.has_graph);
  if (tested.has_graph) (gradients[0].square().sum() + gradients[1].square().sum()).backward();
}

/// Ends the process with code 0, unless a signal does. With two threads, what one writes past its part of a buffer
/// is the other's part.
[[noreturn]] void compute_guarded(const Case& tested) {
  guard_new_memory();
  at::set_num_threads(1);
  for (std::int64_t channels = 1; channels <= 8; ++channels) compute_gradients(tested, channels);
  _exit(0);
}

[[noreturn]] void write_past_the_end() {
  guard_new_memory();
  const at::Tensor tensor = at::empty({16}, at::kFloat);
  tensor.mutable_data_ptr<float>()[15] = 1;
  tensor.mutable_data_ptr<float>()[16] = 1;
  _exit(0);
}

TEST(ConvolutionGuardTest, PixelwiseConvolutionsThatSkipPixels) {
  EXPECT_EXIT(write_past_the_end(), ::testing::KilledBySignal(SIGSEGV), "");
  for (const at::MemoryFormat images : {at::MemoryFormat::ChannelsLast, at::MemoryFormat::Contiguous}) {
    for (const at::MemoryFormat weight : {at::MemoryFormat::ChannelsLast, at::MemoryFormat::Contiguous}) {
      for (const bool has_graph : {false, true}) {
        EXPECT_EXIT(compute_guarded({images, weight, has_graph}), ::testing::ExitedWithCode(0), "")
            << "images " << images << ", weight " << weight << (has_graph ? ", differentiated twice" : "");
      }
    }
  }
}

// Libraries read their variables once, so a program of its own runs at this level.
TEST(ConvolutionGuardTest, TheSameAtLevelAvx2) {
  if (machine_level() <= ProcessorLevel::avx2) GTEST_SKIP() << "this machine has no higher level";
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const testing::ProgramResult outcome = testing::run_shell(
      "env -u ATEN_CPU_CAPABILITY -u ONEDNN_MAX_CPU_ISA -u MKL_ENABLE_INSTRUCTIONS -u MKL_CBWR"
      " LOCKSTEP_CPU=avx2 GTEST_FILTER=ConvolutionGuardTest.Pixelwise* '" +
      program + "'");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("[  PASSED  ] 1 test."), std::string::npos) << outcome.output;
}

}  // namespace convolution_guard_test
}  // namespace lockstep::models
