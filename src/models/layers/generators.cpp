// SPDX-License-Identifier: BSD-3-Clause
#include "models/layers/generators.hpp"

#include <ATen/Context.h>

#include <atomic>
#include <mutex>
#include <utility>

namespace lockstep::models {

namespace {

/// Null = nothing is recorded. Backward, in threads of its own, reads it, too.
std::atomic<const RecordedDraws*> recorded_draws = nullptr;

/// Calls `work` with the default generator, which no other thread uses meanwhile.
template <class Work>
auto with_generator(c10::Device device, const Work& work) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> hold(generator.mutex());
  return work(generator);
}

void seed_default_generator(c10::Device device, std::uint64_t seed) {
  with_generator(device, [seed](at::Generator& generator) { generator.set_current_seed(seed); });
}

at::Tensor state_of(c10::Device device) {
  return with_generator(device, [](const at::Generator& generator) { return generator.get_state(); });
}

void set_state(c10::Device device, const at::Tensor& state) {
  with_generator(device, [&state](at::Generator& generator) { generator.set_state(state); });
}

}  // namespace

void seed_generators(std::uint64_t seed, random::Stream stream, std::uint64_t a, std::uint64_t b, c10::Device device) {
  const std::uint64_t drawn = random::bits(seed, stream, a, b);
  seed_default_generator(at::kCPU, drawn);
  if (!device.is_cpu()) seed_default_generator(device, drawn);
}

ScopedRecordedDraws::ScopedRecordedDraws(RecordedDraws draws) : draws_(std::move(draws)) { recorded_draws = &draws_; }

ScopedRecordedDraws::~ScopedRecordedDraws() { recorded_draws = nullptr; }

GeneratorStates GeneratorStates::now(c10::Device device) {
  GeneratorStates states(device);
  states.of_cpu_ = state_of(at::kCPU);
  if (device.is_cpu()) return states;
  if (const RecordedDraws* const draws = recorded_draws) {
    states.recorded_ = draws->place();
  } else {
    states.of_device_ = state_of(device);
  }
  return states;
}

void GeneratorStates::establish() const {
  set_state(at::kCPU, of_cpu_);
  if (of_device_.defined()) set_state(device_, of_device_);
  if (recorded_) recorded_draws.load()->return_to(*recorded_);
}

}  // namespace lockstep::models
