// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/ddp/requirements.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep::parallel {
namespace requirements_test {

std::string refusal(const std::vector<int>& host_of_rank, int hosts) {
  mpi::Topology topology;
  topology.host_of_rank = host_of_rank;
  topology.host_count = hosts;
  try {
    require_equal_hosts(topology);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(RequirementsTest, HostsHaveAsManyRanks) {
  EXPECT_EQ(refusal({0}, 1), "");
  EXPECT_EQ(refusal({0, 1, 2}, 3), "");
  EXPECT_EQ(refusal({0, 1, 0, 1}, 2), "");
  EXPECT_EQ(refusal({0, 1, 0, 2, 1, 1}, 3),
            "strategy.shard_within=host requires the same number of ranks on every host, but there are 2 on the host "
            "of rank 0 and 3 on the host of rank 1; start equal numbers (mpirun --map-by ppr:N:node), or set "
            "strategy.shard_within=all");
}

}  // namespace requirements_test
}  // namespace lockstep::parallel
