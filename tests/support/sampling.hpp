// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

// Long tests run all of their cases with `tools/test --long`, and a sample of them otherwise.
namespace lockstep::testing {

/// Whether `tools/test --long` runs.
inline bool is_long_run() {
  const char* const value = std::getenv("LOCKSTEP_TEST_LONG");
  return value != nullptr && std::string(value) == "1";
}

/// The seed of the sample: that of the environment, else 1.
inline std::uint64_t test_seed() {
  const char* const value = std::getenv("LOCKSTEP_TEST_SEED");
  return value != nullptr ? std::strtoull(value, nullptr, 10) : 1;
}

/// Whether a case belongs to the sample, which has one of `of` cases with successive numbers.
inline bool is_sampled(std::uint64_t number, std::uint64_t of) {
  return is_long_run() || (number + test_seed()) % of == 0;
}

}  // namespace lockstep::testing
