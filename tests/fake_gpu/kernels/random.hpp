// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "fake_gpu/fake_gpu.hpp"

namespace lockstep::fake_gpu {

/// The random numbers of one operator: seed and offset of LibTorch's generator for CUDA. While a stream is captured
/// they are in memory of the device, from where each launch of the graph reads others.
struct RandomDraw {
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;                 ///< added to the offset in memory
  const std::int64_t* seed_at = nullptr;    ///< null unless captured
  const std::int64_t* offset_at = nullptr;  ///< null unless captured
  std::vector<Range> ranges = {};           ///< the memory of both
};

/// Takes the next numbers of a generator, or of the current device's.
RandomDraw next_draw(const std::optional<at::Generator>& generator);

/// A generator for the CPU that belongs to these numbers; to be called when the operator runs.
at::Generator cpu_generator(const RandomDraw& draw);

}  // namespace lockstep::fake_gpu
