// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/random/random.hpp>

#include "random/words.hpp"

namespace lockstep::random {

namespace {

constexpr int kRounds = 10;
constexpr std::array<std::uint64_t, 2> kMultipliers = {0xD2511F53U, 0xCD9E8D57U};
constexpr std::array<std::uint32_t, 2> kKeySteps = {0x9E3779B9U, 0xBB67AE85U};

}  // namespace

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t even = kMultipliers[0] * counter[0];
    const std::uint64_t odd = kMultipliers[1] * counter[2];
    counter = {high(odd) ^ counter[1] ^ key[0], low(odd), high(even) ^ counter[3] ^ key[1], low(even)};
    key[0] += kKeySteps[0];
    key[1] += kKeySteps[1];
  }
  return counter;
}

}  // namespace lockstep::random
