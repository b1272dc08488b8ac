// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "support/reference.hpp"

namespace lockstep::testing::reference {
namespace coverage_test {

TEST(ReferenceCoverage, EveryTopicHasATestOrIsPending) { check_coverage({LOCKSTEP_REFERENCE_TOPICS}); }

}  // namespace coverage_test
}  // namespace lockstep::testing::reference
