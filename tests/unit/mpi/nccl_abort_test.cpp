// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "support/program.hpp"

namespace lockstep::mpi {
namespace nccl_abort_test {

TEST(NcclAbortTest, OneThatHangsEndsTheProcess) {
  const auto outcome = lockstep::testing::run_shell(
      std::string("OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ") + LOCKSTEP_ABORT_HELPER, 50);
  EXPECT_EQ(outcome.exit_code, 5) << outcome.output;
  EXPECT_EQ(outcome.output,
            "lockstep: NCCL did not return from abort within 0.2 s; ending this process: a peer or the network failed: "
            "remote "
            "process exited\n");
}

}  // namespace nccl_abort_test
}  // namespace lockstep::mpi
