// SPDX-License-Identifier: BSD-3-Clause
// LOCKSTEP_CPU lowers LibTorch, oneDNN and MKL, too. They read their variables once, so each level is a program of its
// own, and each library says itself what it uses. MKL is the exception: on processors of other vendors it chooses its
// instructions by itself, and can be lowered only to its mode COMPATIBLE, which belongs to the level generic.
#include <ATen/Version.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <string>

#include "core/numbers/processor_level.hpp"
#include "support/program.hpp"

namespace lockstep::models {
namespace library_levels_test {

// A call of MKL, and one of oneDNN. Products of ones are exact.
TEST(LibraryLevelsTest, AProductAndAConvolution) {
  EXPECT_TRUE(at::equal(at::ones({64, 64}).mm(at::ones({64, 64})), at::full({64, 64}, 64)));
  const at::Tensor output = at::conv2d(at::ones({16, 16, 8, 8}), at::ones({16, 16, 3, 3}));
  EXPECT_TRUE(at::equal(output, at::full({16, 16, 6, 6}, 144)));
  std::cout << "LibTorch uses " << at::get_cpu_capability() << "\n";
}

/// The libraries' output when the case before runs at a level.
std::string printed_at(ProcessorLevel level) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const testing::ProgramResult outcome = testing::run_shell(
      "env -u ATEN_CPU_CAPABILITY -u ONEDNN_MAX_CPU_ISA -u MKL_ENABLE_INSTRUCTIONS -u MKL_CBWR"
      " ONEDNN_VERBOSE=1 MKL_VERBOSE=1 LOCKSTEP_CPU=" +
      std::string(name_of(level)) + " GTEST_FILTER=LibraryLevelsTest.AProduct* '" + program + "'");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  return outcome.output;
}

/// The first line with `word`; "" if there is none.
std::string line_with(const std::string& text, const std::string& word) {
  const std::size_t position = text.find(word);
  if (position == std::string::npos) return "";
  const std::size_t begin = text.rfind('\n', position) + 1;
  return text.substr(begin, text.find('\n', position) - begin);
}

bool is_of_intel() { return testing::read_file("/proc/cpuinfo").find("GenuineIntel") != std::string::npos; }

struct Names {
  std::string libtorch;
  std::string one_dnn;  ///< "sse41" of "convolution,jit:sse41", and so on
  std::string mkl;      ///< MKL's name for the instructions, on Intel's processors; empty = only its mode shows
};

const std::map<ProcessorLevel, Names>& names() {
  static const std::map<ProcessorLevel, Names> table = {
      {ProcessorLevel::generic, {"DEFAULT", "sse41", ""}},
      {ProcessorLevel::avx2, {"AVX2", "avx2", "Extensions 2 ("}},
      {ProcessorLevel::avx512, {"AVX512", "avx512", "Extensions 512 ("}},
  };
  return table;
}

TEST(LibraryLevelsTest, EachLibraryIsLowered) {
  if (machine_level() == ProcessorLevel::generic) GTEST_SKIP() << "this machine has the level generic only";
  for (const auto& [level, expected] : names()) {
    if (level > machine_level()) continue;
    SCOPED_TRACE(std::string(name_of(level)));
    const std::string printed = printed_at(level);
    EXPECT_EQ(line_with(printed, "LibTorch uses"), "LibTorch uses " + expected.libtorch) << printed;
    const std::string convolution = line_with(printed, "exec,cpu,convolution,");
    EXPECT_NE(convolution.find(":" + expected.one_dnn), std::string::npos) << printed;
    const std::string product = line_with(printed, "MKL_VERBOSE SGEMM");
    if (product.empty()) continue;  // LibTorch was built with another BLAS
    const bool is_compatible = product.find("CNR:COMPATIBLE") != std::string::npos;
    EXPECT_EQ(is_compatible, level == ProcessorLevel::generic) << product;
    if (!is_of_intel() || expected.mkl.empty()) continue;
    const std::string version = line_with(printed, "MKL_VERBOSE oneMKL");
    EXPECT_NE(version.find(expected.mkl), std::string::npos) << version;
  }
}

}  // namespace library_levels_test
}  // namespace lockstep::models
