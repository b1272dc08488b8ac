// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/process/topology.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::mpi {
namespace topology_test {

TEST(TopologyTest, SeesAllRanksOnThisHost) {
  const auto world = Communicator::world();
  const Topology topology = Topology::of(world);
  EXPECT_EQ(topology.local_rank, world.rank());
  EXPECT_EQ(topology.local_size, world.size());
  EXPECT_EQ(topology.host_index, 0);
  EXPECT_EQ(topology.host_count, 1);
  EXPECT_EQ(topology.host_of_rank, std::vector<int>(static_cast<std::size_t>(world.size()), 0));
  EXPECT_FALSE(topology.host_name.empty());
  EXPECT_GE(topology.cpus, 1);
  EXPECT_GE(topology.host_cpus, topology.cpus);
}

TEST(TopologyTest, SeveralHostsCanBeTriedOnOne) {
  const auto world = Communicator::world();
  for (int hosts = 1; hosts <= world.size(); ++hosts) {
    const Topology topology = Topology::of(world, hosts);
    EXPECT_EQ(topology.host_count, hosts);
    EXPECT_TRUE(std::is_sorted(topology.host_of_rank.begin(), topology.host_of_rank.end()));
    const auto& of_rank = topology.host_of_rank;
    EXPECT_EQ(topology.local_size, std::count(of_rank.begin(), of_rank.end(), topology.host_index));
    const Communicator host = topology.split_by_host(world);
    EXPECT_EQ(host.size(), topology.local_size);
    EXPECT_EQ(host.rank(), topology.local_rank);
  }
  EXPECT_THROW(Topology::of(world, world.size() + 1), ConfigError);
}

TEST(TopologyTest, WarnsWhenThreadsDoNotFit) {
  Topology topology;
  topology.host_name = "node7";
  topology.local_size = 2;
  topology.cpus = 4;
  topology.host_cpus = 4;
  EXPECT_EQ(topology.oversubscription(1), "");
  EXPECT_EQ(topology.oversubscription(2), "");
  EXPECT_EQ(topology.oversubscription(3),
            "2 ranks with 3 threads each share 4 processors on node7: use fewer ranks or threads");
  topology.cpus = 1;
  EXPECT_EQ(topology.oversubscription(2),
            "a rank on node7 has 2 threads but may run on 1 processor only: use fewer threads, or bind each rank to "
            "more processors (mpirun --bind-to none, or --map-by slot:PE=N)");
}

}  // namespace topology_test
}  // namespace lockstep::mpi
