// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "support/reference.hpp"

namespace lockstep::testing::reference {
namespace {

TEST(ReferenceCoverage, EveryTopicHasATestOrIsPending) { check_coverage({LOCKSTEP_REFERENCE_TOPICS}); }

}  // namespace
}  // namespace lockstep::testing::reference
