// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>

#include <cstdio>

namespace lockstep::testing {

constexpr int kPassed = 0;
constexpr int kFailed = 1;
constexpr int kAllSkipped = 77;  ///< ctest's SKIP_RETURN_CODE

/// The exit code of a finished test program. Running no test is a failure.
inline int verdict(bool all_passed) {
  const auto* unit = ::testing::UnitTest::GetInstance();
  if (unit->test_to_run_count() == 0) {
    std::fprintf(stderr, "no test was run\n");
    return kFailed;
  }
  if (!all_passed) return kFailed;
  return unit->skipped_test_count() == unit->test_to_run_count() ? kAllSkipped : kPassed;
}

}  // namespace lockstep::testing
