// SPDX-License-Identifier: BSD-3-Clause
#include "optim/rules/stochastic_rounding.hpp"

#include <lockstep/random/random.hpp>

namespace lockstep::optim {

namespace {

/// FNV-1a.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (const char letter : text) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001B3U;
  return hash;
}

}  // namespace

kernels::RoundingKey rounding_key(std::uint64_t seed, std::string_view parameter, std::int64_t step) {
  const std::uint64_t bits =
      random::bits(seed, random::Stream::rounding, hash_of(parameter), static_cast<std::uint64_t>(step));
  return {.first = static_cast<std::uint32_t>(bits), .second = static_cast<std::uint32_t>(bits >> 32)};
}

}  // namespace lockstep::optim
