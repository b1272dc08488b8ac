// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

// Stochastic rounding of float32 to bfloat16: a number between two numbers of bfloat16 becomes one of them at random,
// with probabilities that make the expected value equal to the number. Numbers that bfloat16 can represent, infinities
// and NaN keep their values. The random bits are a function of a key and of the position of the element in its
// parameter, so that they depend neither on the division among ranks nor on earlier updates.
namespace lockstep::kernels {

/// Selects the random bits of one update of one parameter.
struct RoundingKey {
  std::uint32_t first = 0;
  std::uint32_t second = 0;
};

/// @param from   [count]
/// @param target  [count] bfloat16; alignment is not required
/// @param begin  position of the first element in its parameter
void round_stochastically(const float* from, std::byte* target, std::int64_t count, std::int64_t begin,
                          RoundingKey key);

}  // namespace lockstep::kernels
