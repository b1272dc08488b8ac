// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/system/resources.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep {
namespace available_memory_test {

class AvailableMemoryTest : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = std::filesystem::path(root.path()) / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }

  testing::TemporaryFolder root;
};

TEST_F(AvailableMemoryTest, IsNotKnownWithoutFiles) { EXPECT_EQ(available_memory(root.path()), std::nullopt); }

TEST_F(AvailableMemoryTest, IsThatOfTheHostWithoutGroups) {
  write("proc/meminfo", "MemTotal:       8000 kB\nMemFree:         100 kB\nMemAvailable:   5000 kB\n");
  EXPECT_EQ(available_memory(root.path()), 5000 * 1024);
  write("proc/self/cgroup", "0::/job\n");
  write("sys/fs/cgroup/job/memory.max", "max\n");
  write("sys/fs/cgroup/job/memory.current", "1000\n");
  EXPECT_EQ(available_memory(root.path()), 5000 * 1024);
}

TEST_F(AvailableMemoryTest, IsTheLeastOfAllGroupsThatContainTheProcess) {
  write("proc/meminfo", "MemAvailable:   5000 kB\n");
  write("proc/self/cgroup", "0::/user/job\n");
  write("sys/fs/cgroup/user/job/memory.max", "4000000\n");
  write("sys/fs/cgroup/user/job/memory.current", "1000000\n");
  EXPECT_EQ(available_memory(root.path()), 3000000);
  write("sys/fs/cgroup/user/memory.max", "3000000\n");
  write("sys/fs/cgroup/user/memory.current", "2500000\n");
  EXPECT_EQ(available_memory(root.path()), 500000);
  write("sys/fs/cgroup/user/memory.stat", "anon 7\ninactive_file 600000\nactive_file 400000\n");
  EXPECT_EQ(available_memory(root.path()), 1500000) << "cached files are given up";
  write("sys/fs/cgroup/user/memory.current", "9000000\n");
  EXPECT_EQ(available_memory(root.path()), 0);
}

TEST_F(AvailableMemoryTest, ReadsTheFirstVersionOfGroups) {
  write("proc/meminfo", "MemAvailable:   5000 kB\n");
  write("proc/self/cgroup", "11:cpu,cpuacct:/job\n4:memory:/job\n");
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1000\n");
  EXPECT_EQ(available_memory(root.path()), 5000 * 1024);
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "2000000\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "1000000\n");
  write("sys/fs/cgroup/memory/memory.stat", "total_inactive_file 1000\ntotal_active_file 200\n");
  EXPECT_EQ(available_memory(root.path()), 1001200);
}

TEST_F(AvailableMemoryTest, TheSmallestLimitCounts) {
  EXPECT_EQ(memory_limit(root.path()), std::nullopt);
  write("proc/self/cgroup", "4:memory:/user/job\n0::/user/job\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(memory_limit(root.path()), std::nullopt);
  write("sys/fs/cgroup/memory/user/memory.limit_in_bytes", "2000000\n");
  write("sys/fs/cgroup/user/job/memory.max", "3000000\n");
  EXPECT_EQ(memory_limit(root.path()), 2000000);
  write("sys/fs/cgroup/user/memory.max", "1000000\n");
  EXPECT_EQ(memory_limit(root.path()), 1000000);
}

TEST_F(AvailableMemoryTest, OfThisHost) {
  const auto memory = available_memory();
  if (!memory) GTEST_SKIP() << "/proc/meminfo has no MemAvailable";
  EXPECT_GT(*memory, 1'000'000);
}

}  // namespace available_memory_test
}  // namespace lockstep
