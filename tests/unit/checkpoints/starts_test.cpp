// SPDX-License-Identifier: BSD-3-Clause
// How often a run has started from the same step.
#include "checkpoints/disk/disk.hpp"
#include "checkpoints/store/store.hpp"
#include "support.hpp"

namespace lockstep::checkpoints {
namespace starts_test {

TEST(StartsTest, CountsThoseFromTheSameStepInARow) {
  const TemporaryFolder folder;
  const std::string directory = folder / "ckpt";  // made when it is missing
  EXPECT_EQ(read_requeue_count(directory).count, 0);
  EXPECT_EQ(note_start(directory, 10, false), 1);
  EXPECT_EQ(note_start(directory, 10, false), 2);
  EXPECT_EQ(note_start(directory, 10, false), 3);
  EXPECT_EQ(read_requeue_count(directory).step, 10);
  EXPECT_EQ(read_requeue_count(directory).count, 3);
  EXPECT_EQ(note_start(directory, 20, false), 1);
  EXPECT_EQ(note_start(directory, 20, false), 2);
  EXPECT_EQ(note_start(directory, 20, true), 1);
  EXPECT_EQ(note_start(directory, 20, false), 2);
  EXPECT_TRUE(list(directory).empty());
}

TEST(StartsTest, WhatCannotBeUnderstoodCountsAsNone) {
  const TemporaryFolder folder;
  for (const char* const text : {"", "step", "step ten\ncount 3\n", "count 3\nstep 10\n", "step 10\ncount -3\n",
                                 "step 99999999999999999999\ncount 1\n"}) {
    put_bytes(folder / "STARTS", text);
    EXPECT_EQ(read_requeue_count(folder.path()).count, 0) << text;
    EXPECT_EQ(note_start(folder.path(), 10, false), 1) << text;
  }
  put_bytes(folder / temporary_name("STARTS"), "of a start that was cut short");
  EXPECT_EQ(note_start(folder.path(), 10, false), 2);
}

}  // namespace starts_test
}  // namespace lockstep::checkpoints
