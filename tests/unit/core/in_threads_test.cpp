// SPDX-License-Identifier: BSD-3-Clause
#include "core/system/in_threads.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace lockstep {
namespace in_threads_test {

TEST(InThreadsTest, EachNumberIsWorkedOnOnceAndTheFirstOneHere) {
  for (const int threads : {1, 2, 5}) {
    std::vector<int> calls(static_cast<std::size_t>(threads));
    std::vector<std::thread::id> ids(calls.size());
    in_threads(threads, [&](int t) {
      ++calls[static_cast<std::size_t>(t)];
      ids[static_cast<std::size_t>(t)] = std::this_thread::get_id();
    });
    EXPECT_EQ(calls, std::vector<int>(calls.size(), 1));
    EXPECT_EQ(ids[0], std::this_thread::get_id());
    for (std::size_t t = 1; t < ids.size(); ++t) EXPECT_NE(ids[t], ids[0]);
  }
}

// All threads have ended by then.
TEST(InThreadsTest, TheFailureOfTheLowestNumberIsThrown) {
  std::atomic<int> ended = 0;
  try {
    in_threads(4, [&](int t) {
      ++ended;
      if (t > 0 && t < 3) throw std::runtime_error(std::to_string(t));
    });
    ADD_FAILURE();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "1");
  }
  EXPECT_EQ(ended, 4);
}

}  // namespace in_threads_test
}  // namespace lockstep
