// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/random/random.hpp>

#include <c10/core/Device.h>

#include <cstdint>

namespace lockstep::models {

/// Seeds LibTorch's default generator from counters: whatever LibTorch draws next (initial values, dropout) is a pure
/// function of the arguments, so no generator state decides a resume.
/// @param a  for Stream::forward the step
/// @param b  for Stream::forward the rank and micro_batch, combined by the caller
/// @param device  whose generator is seeded, too
void seed_generators(std::uint64_t seed, random::Stream stream, std::uint64_t a, std::uint64_t b = 0,
                     c10::Device device = c10::kCPU);

}  // namespace lockstep::models
