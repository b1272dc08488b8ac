// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "engine/loop/captured_step.hpp"

namespace lockstep::engine {
namespace capture_policy_test {

TEST(CapturePolicyTest, AStaticStepOnAGpuIsCaptured) { EXPECT_EQ(reason_against_capture({}), ""); }

TEST(CapturePolicyTest, EveryOtherFactHasAReasonOfItsOwn) {
  const CaptureFacts facts[] = {{.is_on_gpu = false},         {.has_lanes = true},       {.uses_closure = true},
                                {.has_captured_form = false}, {.is_sharded = true},      {.has_fixed_hook_work = false},
                                {.finds_unused = true},       {.reads_gradients = true}, {.times_sections = true},
                                {.reports_times = true},      {.checks_writes = true},   {.has_parts = true}};
  std::set<std::string> reasons;
  for (const CaptureFacts& fact : facts) {
    const std::string reason = reason_against_capture(fact);
    EXPECT_NE(reason.find('('), std::string::npos) << reason;  // it names a key
    reasons.insert(reason);
  }
  EXPECT_EQ(reasons.size(), std::size(facts));
}

TEST(CapturePolicyTest, TheDeviceIsStatedFirst) {
  EXPECT_EQ(reason_against_capture({.is_on_gpu = false, .checks_writes = true}),
            "CUDA graphs require a GPU (run.device)");
}

}  // namespace capture_policy_test
}  // namespace lockstep::engine
