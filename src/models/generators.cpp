// SPDX-License-Identifier: BSD-3-Clause
#include "models/generators.hpp"

#include <ATen/Context.h>

#include <mutex>

namespace lockstep::models {

namespace {

void seed_default_generator(c10::Device device, std::uint64_t seed) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> hold(generator.mutex());
  generator.set_current_seed(seed);
}

}  // namespace

void seed_generators(std::uint64_t seed, random::Stream stream, std::uint64_t a, std::uint64_t b, c10::Device device) {
  const std::uint64_t drawn = random::bits(seed, stream, a, b);
  seed_default_generator(at::kCPU, drawn);
  if (!device.is_cpu()) seed_default_generator(device, drawn);
}

}  // namespace lockstep::models
