// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/process/waits.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <optional>

namespace lockstep::mpi {
namespace {

TEST(WaitsTest, TheOuterMarkOfACallCounts) {
  EXPECT_FALSE(UnboundedCall::duration());
  {
    const UnboundedCall outer;
    { const UnboundedCall inner; }
    EXPECT_TRUE(UnboundedCall::duration());
  }
  EXPECT_FALSE(UnboundedCall::duration());
}

TEST(WaitsTest, TheCheckIsCalledWhileItIsSet) {
  EXPECT_NO_THROW(check_wait());
  set_wait_check([] { throw CommError("rank 1 has died"); });
  EXPECT_TRUE(has_wait_check());
  EXPECT_THROW(check_wait(), CommError);
  set_wait_check({});
  EXPECT_FALSE(has_wait_check());
  EXPECT_NO_THROW(check_wait());
}

}  // namespace
}  // namespace lockstep::mpi
