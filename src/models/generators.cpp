// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/models/generators.hpp>

#include <ATen/Context.h>

#include <mutex>

namespace lockstep::models {

void seed_generators(std::uint64_t seed, random::Stream stream, std::uint64_t a, std::uint64_t b) {
  const at::Generator& generator = at::globalContext().defaultGenerator(at::kCPU);
  at::Generator handle = generator;
  const std::lock_guard<std::mutex> hold(handle.mutex());
  handle.set_current_seed(random::bits(seed, stream, a, b));
}

}  // namespace lockstep::models
