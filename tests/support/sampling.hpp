// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

// Long tests run all of their cases with `tools/test --long`, and a sample of them otherwise. Programs with many cases
// run a part of them in the short form.
namespace lockstep::testing {

/// Whether `tools/test --long` runs.
inline bool is_long_run() {
  const char* const value = std::getenv("LOCKSTEP_TEST_LONG");
  return value != nullptr && std::string(value) == "1";
}

/// Whether the short form of `tools/test` runs, without a name.
inline bool is_sample() { return std::getenv("LOCKSTEP_TEST_SAMPLE") != nullptr; }

/// The seed of the sample: that of the environment, else 1.
inline std::uint64_t test_seed() {
  const char* const value = std::getenv("LOCKSTEP_TEST_SEED");
  return value != nullptr ? std::strtoull(value, nullptr, 10) : 1;
}

/// Whether a case belongs to the sample, which has one of `period` cases with successive numbers.
inline bool is_sampled(std::uint64_t number, std::uint64_t period) {
  return is_long_run() || (number + test_seed()) % period == 0;
}

/// Called before a test program runs its `cases` cases. With LOCKSTEP_TEST_SAMPLE=1, which the short form of tools/test
/// sets, it runs one of `share` of its cases, where LOCKSTEP_TEST_DRAW is "number/share". Under mpirun, each number of
/// ranks has another number, so that each case runs on one of them. A filter is not narrowed.
inline void draw_cases(int cases) {
  const char* const draw = std::getenv("LOCKSTEP_TEST_DRAW");
  if (!is_sample() || draw == nullptr || std::getenv("GTEST_FILTER") != nullptr) return;
  char* rest = nullptr;
  const std::uint64_t number = std::strtoull(draw, &rest, 10);
  const std::uint64_t wanted = *rest == '/' ? std::strtoull(rest + 1, nullptr, 10) : 1;
  const std::uint64_t share = std::min<std::uint64_t>(wanted, static_cast<std::uint64_t>(cases));
  if (share < 2) return;
  setenv("GTEST_TOTAL_SHARDS", std::to_string(share).c_str(), 1);
  setenv("GTEST_SHARD_INDEX", std::to_string((test_seed() + number) % share).c_str(), 1);
}

}  // namespace lockstep::testing
