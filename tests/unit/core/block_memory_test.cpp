// SPDX-License-Identifier: BSD-3-Clause
#include "core/system/block_memory.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <new>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <vector>

#include "core/system/memory.hpp"

namespace lockstep {
namespace block_memory_test {

constexpr std::size_t kMegabyte = 1 << 20;

/// Memory from the system that is used at once.
class UsedMemory {
 public:
  explicit UsedMemory(std::size_t megabytes) : bytes_(megabytes * kMegabyte) {
    begin_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (begin_ == MAP_FAILED) throw std::bad_alloc();
    std::memset(begin_, 1, bytes_);
  }
  ~UsedMemory() { ::munmap(begin_, bytes_); }
  UsedMemory(const UsedMemory&) = delete;
  UsedMemory& operator=(const UsedMemory&) = delete;

 private:
  void* begin_ = nullptr;
  std::size_t bytes_ = 0;
};

std::vector<std::string> names_of_largest(std::size_t count) {
  std::vector<std::string> names;
  for (const BlockMemory& memory : largest_blocks(count)) names.push_back(memory.block);
  return names;
}

// One test, because a process measures once. It contains "stem", that contains "stem.conv".
TEST(BlockMemoryTest, TheGrowthCountsForTheBlockThatRuns) {
  {
    const GrowthMeasurement unwanted(false);
    const UsedMemory memory(8);
    count_growth("stem");
  }
  EXPECT_TRUE(largest_blocks(9).empty());

  note_parameters("stem.conv", 5 * kMegabyte);
  note_parameters("", 2 * kMegabyte);
  note_parameters("head", kMegabyte / 2);
  {
    const GrowthMeasurement first(true);
    count_growth(nullptr);  // the model begins
    const UsedMemory before(16);
    count_growth("");  // stem begins
    count_growth("stem");
    const UsedMemory inside(64);
    count_growth("stem.conv");  // it ends
    { const GrowthMeasurement within(true); }
    const UsedMemory after(32);
    count_growth("stem");
    std::thread([] { count_growth("head"); }).join();
  }
  {
    const GrowthMeasurement second(true);
    const UsedMemory memory(128);
    count_growth("head");
  }

  EXPECT_EQ(names_of_largest(9), (std::vector<std::string>{"stem.conv", "stem", "model"}));
  EXPECT_EQ(names_of_largest(1), std::vector<std::string>{"stem.conv"});
  const std::vector<BlockMemory> largest = largest_blocks(9);
  EXPECT_EQ(largest[0].parameters_mb, 5);
  EXPECT_NEAR(largest[0].forward_mb, 64, 1);
  EXPECT_EQ(largest[1].parameters_mb, 0);
  EXPECT_NEAR(largest[1].forward_mb, 32, 1);
  EXPECT_NEAR(largest[2].forward_mb, 16, 1);
  const std::string sentence = out_of_memory_error(std::bad_alloc()).what();
  EXPECT_NE(sentence.find("; the largest blocks of the model are " + text_of(largest[0]) + ", stem ("),
            std::string::npos)
      << sentence;
}

TEST(BlockMemoryTest, OfABlockWithoutAForwardPassOnlyTheParametersAreNamed) {
  EXPECT_EQ(text_of({.block = "fc", .parameters_mb = 2.4, .forward_mb = 0}), "fc (parameters 2 MiB)");
}

}  // namespace block_memory_test
}  // namespace lockstep
