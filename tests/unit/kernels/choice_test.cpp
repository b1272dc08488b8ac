// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/kernels.hpp"
#include "support/levels.hpp"

namespace lockstep::kernels {
namespace choice_test {

using Levels = std::vector<ProcessorLevel>;

constexpr std::array kLevels = {ProcessorLevel::generic, ProcessorLevel::avx2, ProcessorLevel::avx512,
                                ProcessorLevel::amx};

// Kernels for vectors of 8 numbers were measured to be faster where the libraries have no longer ones either.
const std::map<Kernel, Levels>& expected_without_ratios() {
  const Levels avx2 = {ProcessorLevel::avx2};
  const Levels up_to_avx2 = {ProcessorLevel::generic, ProcessorLevel::avx2};
  const Levels every(kLevels.begin(), kLevels.end());
  static const std::map<Kernel, Levels> table = {
      {Kernel::attention, avx2},
      {Kernel::depthwise, avx2},
      {Kernel::depthwise_3x3, avx2},
      {Kernel::patch_product, avx2},
      {Kernel::winograd, avx2},
      {Kernel::gelu, avx2},
      {Kernel::gelu_gradient, up_to_avx2},
      {Kernel::gelu_step, every},
      {Kernel::batch_norm, every},
      {Kernel::outer_product, every},
      {Kernel::rounded_products, up_to_avx2},
      {Kernel::rounded_attention, up_to_avx2},
      {Kernel::rounded_depthwise, up_to_avx2},
      {Kernel::linear, every},
      {Kernel::shallow_linear, every},
      {Kernel::linear_gelu, {ProcessorLevel::avx2, ProcessorLevel::avx512, ProcessorLevel::amx}},
      {Kernel::linear_sum, {ProcessorLevel::avx2, ProcessorLevel::avx512, ProcessorLevel::amx}},
      {Kernel::linear_gradient, every},
      {Kernel::packed_pixelwise, {}},
      {Kernel::dot_products, {}},
      {Kernel::few_rows, every},
      {Kernel::frequency_products, every},
  };
  return table;
}

TEST(KernelChoiceTest, WithoutRatiosDependsOnTheLevel) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "the levels are those of x86-64 processors";
#endif
  ASSERT_EQ(expected_without_ratios().size(), kKernelRows.size());
  for (const auto& [kernel, levels] : expected_without_ratios()) {
    Levels used;
    for (const auto level : kLevels) {
      if (is_chosen({}, kernel, level, ProcessorVendor::amd)) used.push_back(level);
    }
    EXPECT_EQ(used, levels) << name_of(kernel);
  }
}

TEST(KernelChoiceTest, IsThatOfTheVendorOrElseOfAnotherOne) {
  const std::initializer_list<MeasuredRatio> table = {
      {Kernel::gelu, ProcessorLevel::avx512, ProcessorVendor::amd, 0.9},
      {Kernel::gelu, ProcessorLevel::avx512, ProcessorVendor::intel, 1.1},
      {Kernel::gelu, ProcessorLevel::avx2, ProcessorVendor::intel, 1.0},
      {Kernel::depthwise, ProcessorLevel::avx512, ProcessorVendor::intel, 0.5},
      {Kernel::depthwise, ProcessorLevel::amx, ProcessorVendor::amd, 2.0},
      {Kernel::batch_norm, ProcessorLevel::generic, ProcessorVendor::amd, 1.2},
      {Kernel::attention, ProcessorLevel::generic, ProcessorVendor::intel, 0.99},
      {Kernel::linear, ProcessorLevel::avx2, ProcessorVendor::intel, 1.1},
  };
  const auto choice = [&](Kernel kernel, ProcessorLevel level, ProcessorVendor vendor) {
    return is_chosen(table, kernel, level, vendor);
  };
  for (const ProcessorLevel level : {ProcessorLevel::avx512, ProcessorLevel::amx}) {
    EXPECT_TRUE(choice(Kernel::gelu, level, ProcessorVendor::amd));
    EXPECT_FALSE(choice(Kernel::gelu, level, ProcessorVendor::intel));
    EXPECT_TRUE(choice(Kernel::gelu, level, ProcessorVendor::other)) << "the first row of any vendor";
  }
  EXPECT_FALSE(choice(Kernel::linear, ProcessorLevel::avx2, ProcessorVendor::intel));
  EXPECT_TRUE(choice(Kernel::linear, ProcessorLevel::avx2, ProcessorVendor::amd)) << "MKL differs between vendors";
  EXPECT_TRUE(choice(Kernel::linear, ProcessorLevel::avx2, ProcessorVendor::other));
  for (const auto vendor : {ProcessorVendor::amd, ProcessorVendor::intel, ProcessorVendor::other}) {
    EXPECT_TRUE(choice(Kernel::depthwise, ProcessorLevel::avx512, vendor));
    EXPECT_FALSE(choice(Kernel::depthwise, ProcessorLevel::amx, vendor))
        << "a row of amx, of whatever vendor, is first";
    EXPECT_FALSE(choice(Kernel::gelu, ProcessorLevel::avx2, vendor)) << "not faster";
    EXPECT_FALSE(choice(Kernel::batch_norm, ProcessorLevel::generic, vendor));
    EXPECT_TRUE(choice(Kernel::attention, ProcessorLevel::generic, vendor));
    // Rows of other levels and kernels do not matter.
    EXPECT_FALSE(choice(Kernel::gelu, ProcessorLevel::generic, vendor));
    EXPECT_TRUE(choice(Kernel::batch_norm, ProcessorLevel::avx2, vendor));
    EXPECT_TRUE(choice(Kernel::attention, ProcessorLevel::avx2, vendor));
    EXPECT_FALSE(choice(Kernel::winograd, ProcessorLevel::avx512, vendor));
  }
}

TEST(KernelChoiceTest, FollowsTheTableAtTheLevelInUse) {
  testing::at_each_level([] {
    for (const KernelRow& row : kKernelRows) {
      EXPECT_EQ(is_used(row.kernel), is_chosen(measured_ratios(), row.kernel, processor_level(), processor_vendor()))
          << row.name;
    }
  });
}

TEST(KernelChoiceTest, TheTableHasOneRowForEachKernelLevelAndVendor) {
  std::set<std::tuple<Kernel, ProcessorLevel, ProcessorVendor>> seen;
  for (const MeasuredRatio& row : measured_ratios()) {
    EXPECT_TRUE(seen.emplace(row.kernel, row.level, row.vendor).second) << name_of(row.kernel);
    EXPECT_GT(row.ratio, 0);
    EXPECT_NE(row.vendor, ProcessorVendor::other);
  }
}

TEST(KernelChoiceTest, RowsAreInTheOrderOfTheKernels) {
  for (std::size_t i = 0; i < kKernelRows.size(); ++i) EXPECT_EQ(static_cast<std::size_t>(kKernelRows[i].kernel), i);
}

TEST(KernelChoiceTest, CanBeForced) {
  testing::at_each_level([] {
    for (const KernelRow& row : kKernelRows) {
      const bool before = is_used(row.kernel);
      {
        const ScopedChoice outer(row.kernel, !before);
        EXPECT_EQ(is_used(row.kernel), !before);
        {
          const ScopedChoice inner(row.kernel, before);
          EXPECT_EQ(is_used(row.kernel), before);
        }
        EXPECT_EQ(is_used(row.kernel), !before);
      }
      EXPECT_EQ(is_used(row.kernel), before);
    }
  });
}

// The operating system's name of the vendor.
TEST(ProcessorVendorTest, IsThatOfTheOperatingSystem) {
  std::ifstream file("/proc/cpuinfo");
  std::string name;
  for (std::string line; std::getline(file, line) && name.empty();) {
    if (line.starts_with("vendor_id")) name = line.substr(line.find(':') + 2);
  }
  if (name.empty()) GTEST_SKIP() << "/proc/cpuinfo names no vendor";
  const ProcessorVendor expected = name == "AuthenticAMD"   ? ProcessorVendor::amd
                                   : name == "GenuineIntel" ? ProcessorVendor::intel
                                                            : ProcessorVendor::other;
  EXPECT_EQ(processor_vendor(), expected) << name;
}

}  // namespace choice_test
}  // namespace lockstep::kernels
