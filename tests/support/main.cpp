// SPDX-License-Identifier: BSD-3-Clause
#include "support/sampling.hpp"
#include "support/verdict.hpp"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  lockstep::testing::draw_cases(::testing::UnitTest::GetInstance()->total_test_count());
  return lockstep::testing::verdict(RUN_ALL_TESTS() == 0);
}
