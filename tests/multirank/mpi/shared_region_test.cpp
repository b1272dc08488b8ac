// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/host/shared_region.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <sys/mman.h>
#include <type_traits>

namespace lockstep::mpi {
namespace shared_region_test {

static_assert(std::is_nothrow_move_constructible_v<SharedRegion> && std::is_nothrow_move_assignable_v<SharedRegion>);

/// No file of ours is in /dev/shm.
void expect_no_name(const Communicator& world) {
  world.barrier();  // a rank may still be making the last region, or be making the next
  const std::filesystem::directory_iterator files("/dev/shm");
  EXPECT_EQ(std::count_if(begin(files), end(files),
                          [](const auto& entry) { return entry.path().filename().string().starts_with("lockstep"); }),
            0);
  world.barrier();
}

/// Every rank writes its own byte and reads everybody's.
void expect_shared(const Communicator& world, std::span<std::byte> bytes) {
  EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(), [](std::byte value) { return value == std::byte{0}; }));
  world.barrier();
  const std::size_t stride = bytes.size() / world.size();
  bytes[world.rank() * stride] = static_cast<std::byte>(world.rank() + 1);
  world.barrier();
  for (int rank = 0; rank < world.size(); ++rank) {
    EXPECT_EQ(bytes[rank * stride], static_cast<std::byte>(rank + 1)) << "of rank " << rank;
  }
  world.barrier();
}

TEST(SharedRegionTest, IsZeroedAndSeenByAll) {
  const auto world = Communicator::world();
  for (const std::size_t bytes : {100UL, 4096UL, 10'001UL, 3UL << 20}) {
    SCOPED_TRACE(bytes);
    const SharedRegion region(world, bytes);
    EXPECT_EQ(region.bytes().size(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(region.bytes().data()) % 4096, 0U);
    expect_shared(world, region.bytes());
    expect_no_name(world);
  }
}

TEST(SharedRegionTest, EmptyAndMovedFromHoldNothing) {
  const auto world = Communicator::world();
  EXPECT_TRUE(SharedRegion(world, 0).bytes().empty());
  SharedRegion region(world, 4096);
  const std::byte* const address = region.bytes().data();
  SharedRegion taken(std::move(region));
  EXPECT_TRUE(region.bytes().empty());  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(taken.bytes().data(), address);
  SharedRegion assigned(world, 64);
  assigned = std::move(taken);
  EXPECT_TRUE(taken.bytes().empty());  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(assigned.bytes().data(), address);
  expect_shared(world, assigned.bytes());
}

TEST(SharedRegionTest, TooMuchIsAnErrorOnEveryRankWithTheNumber) {
  const auto world = Communicator::world();
  try {
    const SharedRegion region(world, std::size_t{1} << 50);
    ADD_FAILURE() << "a petabyte was given";
  } catch (const CommError& error) {
    EXPECT_TRUE(error.is_agreed());
    EXPECT_NE(std::string(error.what()).find("cannot allocate 1125899906842624 bytes of shared memory"),
              std::string::npos)
        << error.what();
  }
  expect_no_name(world);
}

TEST(SharedFileTest, BothWaysGiveOneFileToAllAndLeaveNoName) {
  const auto world = Communicator::world();
  for (const auto share : {share_memfd, share_by_name}) {
    const SharedFile file = share(world, 8192);
    EXPECT_TRUE(file.is_open());
    void* const address = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file.descriptor(), 0);
    EXPECT_NE(address, MAP_FAILED);
    expect_shared(world, {static_cast<std::byte*>(address), 8192});
    munmap(address, 8192);
    expect_no_name(world);
  }
}

}  // namespace shared_region_test
}  // namespace lockstep::mpi
