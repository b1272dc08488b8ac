// SPDX-License-Identifier: BSD-3-Clause
#include "support/verdict.hpp"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return lockstep::testing::verdict(RUN_ALL_TESTS() == 0);
}
