// SPDX-License-Identifier: BSD-3-Clause
// Copies of archives in memory: what is read back, and what a slot is that was not completed, damaged or removed.
#include "checkpoints/store/memory_slot.hpp"

#include <cmath>
#include <limits>

#include "support.hpp"

namespace lockstep::checkpoints {
namespace memory_slot_test {

/// An archive with some of everything that one can hold.
Archive rich(std::int64_t step) {
  Archive archive = sample(step);
  archive.link("/model/params/tied", "/model/params/fc.weight");
  archive.add_group("/empty");
  archive.put("/nothing", array_of<float>(DType::float32, {0, 5}, {}));
  archive.put("/bytes", array_of<std::uint8_t>(DType::uint8, {1}, {7}));
  archive.set("/", "lowest", std::numeric_limits<std::int64_t>::min());
  archive.set("/", "tenth", 0.1);
  archive.set("/", "one", 1.0);
  archive.set("/", "infinite", -std::numeric_limits<double>::infinity());
  archive.set("/empty", "text", std::string("a\n\"b\" \xC3\xA9"));
  archive.set("/bytes", "unit", std::string());
  return archive;
}

void copy(const std::string& path, const Archive& archive, std::int64_t step, std::uint32_t writers = 1) {
  MemorySlot first(path);
  first.begin(archive);
  first.fill(archive, {0, writers});
  for (std::uint32_t i = 1; i < writers; ++i) MemorySlot(path).fill(archive, {i, writers});
  first.complete(step);
}

TEST(MemorySlotTest, ACopyIsReadAsItWas) {
  const TemporaryFolder folder;
  for (const std::uint32_t writers : {1U, 2U, 7U}) {
    const std::string path = folder.path("slot" + std::to_string(writers));
    EXPECT_EQ(step_in_slot(path), std::nullopt);
    copy(path, rich(12), 12, writers);
    EXPECT_EQ(step_in_slot(path), 12);
    const Archive read = read_slot(path);
    EXPECT_TRUE(same(read, rich(12))) << writers;
    EXPECT_EQ(read.first_path_of("/model/params/tied"), "/model/params/fc.weight");
    EXPECT_EQ(read.origin(), path);
  }
}

TEST(MemorySlotTest, ASlotIsEmptyUntilItIsComplete) {
  const TemporaryFolder folder;
  const std::string path = folder.path("slot");
  MemorySlot slot(path);
  const Archive archive = rich(3);
  slot.begin(archive);
  EXPECT_EQ(step_in_slot(path), std::nullopt);
  slot.fill(archive, {});
  EXPECT_EQ(step_in_slot(path), std::nullopt);
  slot.complete(3);
  EXPECT_EQ(step_in_slot(path), 3);
  slot.begin(rich(4));
  EXPECT_EQ(step_in_slot(path), std::nullopt);
  EXPECT_EQ(error_of([&] { read_slot(path); }), path + ": it has no complete copy");
  EXPECT_EQ(error_of([&] { slot_bytes(path); }), path + ": it has no complete copy");
}

TEST(MemorySlotTest, ASlotIsUsedAgainByLargerAndSmallerArchives) {
  const TemporaryFolder folder;
  const std::string path = folder.path("slot");
  MemorySlot slot(path);
  Archive large = rich(5);
  large.put("/large", array_of(DType::float64, {20'000}, std::vector<double>(20'000, 0.5)));
  const std::vector<std::pair<std::int64_t, Archive>> copies = {{4, rich(4)}, {5, large}, {6, rich(6)}};
  for (const auto& [step, archive] : copies) {
    slot.begin(archive);
    slot.fill(archive, {});
    slot.complete(step);
    EXPECT_EQ(step_in_slot(path), step);
    EXPECT_TRUE(same(read_slot(path), archive)) << step;
  }
  empty_slot(path);
  EXPECT_EQ(step_in_slot(path), std::nullopt);
}

TEST(MemorySlotTest, TheBytesMakeTheSameSlotElsewhere) {
  const TemporaryFolder folder;
  copy(folder.path("slot"), rich(8), 8);
  for (int i = 0; i < 2; ++i) {  // the second time there is a file already
    put_slot_bytes(folder.path("other"), slot_bytes(folder.path("slot")));
    EXPECT_EQ(step_in_slot(folder.path("other")), 8);
    EXPECT_TRUE(same(read_slot(folder.path("other")), rich(8)));
    copy(folder.path("other"), rich(9), 9);
  }
  const std::vector<std::byte> few(100);
  const std::string other = folder.path("other");
  EXPECT_EQ(error_of([&] { put_slot_bytes(other, few); }), other + ": the bytes are no copy");
  EXPECT_EQ(step_in_slot(folder.path("other")), 9);
}

// Damage to the head and the tree is found; the arrays are as safe as the parameters, which are in the same memory.
TEST(MemorySlotTest, ADamagedSlotIsEmpty) {
  const TemporaryFolder folder;
  const std::string path = folder.path("slot");
  copy(path, rich(8), 8);
  const std::string good = bytes_of(path);
  constexpr std::size_t kHeadBytes = 40;
  for (std::size_t place = 0; place < good.size(); ++place) {
    const bool is_of_tree = place > good.rfind("/meta/config");  // the end of the file
    if (place >= kHeadBytes && !is_of_tree) continue;
    std::string bad = good;
    bad[place] = static_cast<char>(bad[place] ^ 0x10);
    put_bytes(path, bad);
    EXPECT_EQ(step_in_slot(path), std::nullopt) << place;
  }
  for (const std::size_t length : {std::size_t{0}, std::size_t{39}, std::size_t{4096}, good.size() - 1}) {
    put_bytes(path, good.substr(0, length));
    EXPECT_EQ(step_in_slot(path), std::nullopt) << length;
    EXPECT_EQ(error_of([&] { read_slot(path); }), path + ": it has no complete copy") << length;
  }
}

TEST(MemorySlotTest, ASlotWhoseFileWasRemovedIsMadeAgain) {
  const TemporaryFolder folder;
  const std::string path = folder.path("slot");
  MemorySlot slot(path);
  for (const std::int64_t step : {1, 2}) {
    const Archive archive = rich(step);
    slot.begin(archive);
    slot.fill(archive, {});
    slot.complete(step);
    EXPECT_EQ(step_in_slot(path), step);
    std::filesystem::remove(path);
  }
}

}  // namespace memory_slot_test
}  // namespace lockstep::checkpoints
