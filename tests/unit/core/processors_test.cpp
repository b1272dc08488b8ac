// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/system/resources.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep {
namespace processors_test {

class CpuQuotaTest : public ::testing::Test {
 protected:
  void put(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  double processors() const {
    const auto quota = cpu_quota(root.path());
    return quota ? quota->processors : 0;
  }

  testing::TemporaryFolder root;
};

TEST_F(CpuQuotaTest, IsNoneWithoutFilesAndWithoutLimit) {
  EXPECT_EQ(processors(), 0);
  put("proc/self/cgroup", "4:cpu,cpuacct:/job\n0::/job\n");
  put("sys/fs/cgroup/job/cpu.max", "max 100000\n");
  put("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
  put("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(processors(), 0);
}

TEST_F(CpuQuotaTest, OfVersionTwoIsTheSmallestOnTheWayUp) {
  put("proc/self/cgroup", "0::/slice/job\n");
  put("sys/fs/cgroup/slice/cpu.max", "150000 100000\n");
  put("sys/fs/cgroup/slice/job/cpu.max", "400000 100000\n");
  EXPECT_EQ(processors(), 1.5);
}

TEST_F(CpuQuotaTest, OfVersionOneIsReadWhereTheControllerIsMounted) {
  for (const char* mount : {"cpu", "cpu,cpuacct"}) {
    put("proc/self/cgroup", std::string("7:") + mount + ":/job\n3:memory:/job\n");
    put(std::string("sys/fs/cgroup/") + mount + "/job/cpu.cfs_quota_us", "200000\n");
    put(std::string("sys/fs/cgroup/") + mount + "/job/cpu.cfs_period_us", "50000\n");
    EXPECT_EQ(processors(), 4) << mount;
  }
}

// Both versions can be mounted elsewhere, and version 2 beside version 1.
TEST_F(CpuQuotaTest, IsReadWhereverGroupsAreMounted) {
  put("proc/self/cgroup", "5:cpuacct,cpu:/a:b/job\n0::/slice\n");
  put("proc/self/mountinfo",
      "31 24 0:27 / /cgroup/processors rw,relatime shared:9 - cgroup cgroup rw,cpuacct,cpu\n"
      "32 24 0:28 / /cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
      "33 24 0:29 / /cgroup/two rw - cgroup2 cgroup2 rw\n"
      "34 24 0:30 / / rw - ext4 /dev/sda1 rw\n");
  put("cgroup/memory/a:b/job/cpu.cfs_quota_us", "1000\n");
  put("cgroup/memory/a:b/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(processors(), 0);
  put("cgroup/processors/a:b/cpu.cfs_quota_us", "300000\n");
  put("cgroup/processors/a:b/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(processors(), 3);
  put("cgroup/two/slice/cpu.max", "250000 100000\n");
  EXPECT_EQ(processors(), 2.5);
  put("sys/fs/cgroup/unified/slice/cpu.max", "50000 100000\n");
  EXPECT_EQ(processors(), 0.5);
}

TEST_F(CpuQuotaTest, OfVersionOneBesideAnUnlimitedOneOfVersionTwo) {
  put("proc/self/cgroup", "1:cpu:/pod/job\n0::/\n");
  put("sys/fs/cgroup/unified/cpu.max", "max 100000\n");
  put("sys/fs/cgroup/cpu/pod/job/cpu.cfs_quota_us", "-1\n");
  put("sys/fs/cgroup/cpu/pod/job/cpu.cfs_period_us", "100000\n");
  put("sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us", "10000\n");
  put("sys/fs/cgroup/cpu/pod/cpu.cfs_period_us", "20000\n");
  EXPECT_EQ(processors(), 0.5);
}

TEST_F(CpuQuotaTest, OfAContainerIsThatOfItsOwnRoot) {
  put("proc/self/cgroup", "0::/../../outside\n");
  put("sys/fs/cgroup/cpu.max", "300000 100000\n");
  EXPECT_EQ(processors(), 3);
}

TEST(UsableProcessorsTest, IsAtLeastOne) { EXPECT_GE(usable_processors(), 1); }

}  // namespace processors_test
}  // namespace lockstep
