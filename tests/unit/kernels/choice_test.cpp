// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "kernels/kernels.hpp"
#include "support/levels.hpp"

namespace lockstep::kernels {
namespace choice_test {

using Levels = std::vector<ProcessorLevel>;

// Kernels for vectors of 8 numbers were measured to be faster where the libraries have no longer ones either.
const std::map<Kernel, Levels>& expected() {
  const Levels avx2 = {ProcessorLevel::avx2};
  const Levels every = {ProcessorLevel::generic, ProcessorLevel::avx2, ProcessorLevel::avx512, ProcessorLevel::amx};
  static const std::map<Kernel, Levels> table = {
      {Kernel::attention, avx2},
      {Kernel::depthwise, avx2},
      {Kernel::patch_product, avx2},
      {Kernel::winograd, avx2},
      {Kernel::gelu, avx2},
      {Kernel::gelu_gradient, {ProcessorLevel::generic, ProcessorLevel::avx2}},
      {Kernel::batch_norm, every},
      {Kernel::outer_product, every},
      {Kernel::rounded_products, {ProcessorLevel::generic, ProcessorLevel::avx2}},
  };
  return table;
}

TEST(KernelChoiceTest, DependsOnTheLevel) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "the table is that of x86-64 processors";
#endif
  for (const auto& [kernel, levels] : expected()) {
    Levels used;
    for (const auto level :
         {ProcessorLevel::generic, ProcessorLevel::avx2, ProcessorLevel::avx512, ProcessorLevel::amx}) {
      if (is_used(kernel, level)) used.push_back(level);
    }
    EXPECT_EQ(used, levels) << static_cast<int>(kernel);
  }
}

TEST(KernelChoiceTest, FollowsTheLevelInUse) {
  testing::at_each_level([] { EXPECT_EQ(is_used(Kernel::winograd), processor_level() == ProcessorLevel::avx2); });
}

}  // namespace choice_test
}  // namespace lockstep::kernels
