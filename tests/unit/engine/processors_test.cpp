// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "engine/setup/resources.hpp"

namespace lockstep::engine {
namespace processors_test {

TEST(ProcessorsOfRanksTest, LevelsAndVendorsAreCompared) {
  EXPECT_EQ(difference_of_processors({"avx2", "avx2"}, {"amd", "amd"}), "");
  EXPECT_EQ(difference_of_processors({"avx512", "avx512", "avx2"}, {"amd", "intel", "amd"}),
            "rank 0 uses the processor level avx512, but rank 2 uses avx2. Set LOCKSTEP_CPU to the lower level on all "
            "ranks");
  EXPECT_EQ(difference_of_processors({"avx2", "avx2", "avx2"}, {"intel", "intel", "amd"}),
            "the processor of rank 0 has the vendor intel, but that of rank 2 has the vendor amd. Use hosts with "
            "processors of one vendor");
}

}  // namespace processors_test
}  // namespace lockstep::engine
