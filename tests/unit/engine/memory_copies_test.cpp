// SPDX-License-Identifier: BSD-3-Clause
// Which slot gets the next copy of a state, and which copies count.
#include "engine/saving/memory_copies.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <filesystem>

#include "checkpoints/store/memory_slot.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::engine {
namespace memory_copies_test {

namespace fs = std::filesystem;
using Steps = std::vector<std::int64_t>;

checkpoints::Archive state_of(std::int64_t step) {
  checkpoints::Archive archive;
  archive.set("/", "step", step);
  return archive;
}

/// Copies the state of `step`.
void copy(const std::string& folder, std::int64_t step) {
  checkpoints::MemorySlot slot(slot_for(folder, step));
  slot.begin(state_of(step));
  slot.fill(state_of(step), {});
  slot.complete(step);
}

class MemoryCopiesTest : public ::testing::Test {
 protected:
  MemoryCopiesTest() { make_memory_folder(folder_); }

  testing::TemporaryFolder parent_;
  std::string folder_ = parent_.path("copies");
};

TEST_F(MemoryCopiesTest, TheLatestTwoAreKept) {
  EXPECT_EQ(memory_steps(folder_), Steps());
  copy(folder_, 10);
  EXPECT_EQ(memory_steps(folder_), (Steps{10}));
  copy(folder_, 20);
  EXPECT_EQ(memory_steps(folder_), (Steps{10, 20}));
  copy(folder_, 30);
  EXPECT_EQ(memory_steps(folder_), (Steps{20, 30}));
}

TEST_F(MemoryCopiesTest, ACopyThatWasNotCompletedLeavesTheLatestOne) {
  for (std::int64_t step = 1; step < 5; ++step) {
    copy(folder_, step);
    checkpoints::MemorySlot interrupted(slot_for(folder_, step + 1));
    interrupted.begin(state_of(step + 1));
    EXPECT_EQ(memory_steps(folder_), (Steps{step}));
  }
}

TEST_F(MemoryCopiesTest, CopiesOfStepsThatAreDoneAgainAreForgotten) {
  copy(folder_, 10);
  copy(folder_, 20);
  forget_later_copies(folder_, 20);
  EXPECT_EQ(memory_steps(folder_), (Steps{10, 20}));
  copy(folder_, 15);
  EXPECT_EQ(memory_steps(folder_), (Steps{10, 15}));
  copy(folder_, 10);
  EXPECT_EQ(memory_steps(folder_), (Steps{10}));
  copy(folder_, 11);
  copy(folder_, 12);
  forget_later_copies(folder_, 11);
  EXPECT_EQ(memory_steps(folder_), (Steps{11}));
}

TEST_F(MemoryCopiesTest, ACopyTravelsToAnotherHost) {
  const std::string other = parent_.path("other");
  copy(folder_, 10);
  put_copy(other, 10, copy_of(folder_, 10));
  EXPECT_EQ(memory_steps(other), (Steps{10}));
  EXPECT_THROW(copy_of(folder_, 11), CheckpointError);
}

TEST_F(MemoryCopiesTest, AFolderThatOthersCanWriteToIsNotUsed) {
  copy(folder_, 10);
  fs::permissions(folder_, fs::perms::others_write, fs::perm_options::add);
  EXPECT_EQ(memory_steps(folder_), Steps());
  EXPECT_THROW(make_memory_folder(folder_), CheckpointError);
}

}  // namespace memory_copies_test
}  // namespace lockstep::engine
