// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/kernels/random.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>

#include <mutex>

namespace lockstep::fake_gpu {

namespace {

// Operators advance a generator by a multiple of four. How far does not matter here, because each offset has a
// generator of its own.
constexpr std::uint64_t kOffsetsPerDraw = 4;

/// Mixes the bits of both numbers (the finalizer of SplitMix64): the generator of the CPU uses only the low 32 bits.
std::uint64_t mixed(std::uint64_t seed, std::uint64_t offset) {
  std::uint64_t bits = seed * 0x9E3779B97F4A7C15U + offset;
  bits = (bits ^ (bits >> 30U)) * 0xBF58476D1CE4E5B9U;
  bits = (bits ^ (bits >> 27U)) * 0x94D049BB133111EBU;
  return bits ^ (bits >> 31U);
}

const std::int64_t* bytes_of(const std::int64_t* memory) { return static_cast<const std::int64_t*>(address(memory)); }

}  // namespace

RandomDraw next_draw(const std::optional<at::Generator>& generator) {
  auto* const taken =
      at::get_generator_or_default<at::CUDAGeneratorImpl>(generator, at::cuda::detail::getDefaultCUDAGenerator());
  const std::lock_guard hold(taken->mutex_);
  const at::PhiloxCudaState state = taken->philox_cuda_state(kOffsetsPerDraw);
  if (!state.captured_) return {.seed = state.seed_.val, .offset = state.offset_.val};
  return {.offset = state.offset_intragraph_,
          .seed_at = bytes_of(state.seed_.ptr),
          .offset_at = bytes_of(state.offset_.ptr),
          .ranges = {{.begin = state.seed_.ptr, .bytes = sizeof(*state.seed_.ptr)},
                     {.begin = state.offset_.ptr, .bytes = sizeof(*state.offset_.ptr)}}};
}

at::Generator cpu_generator(const RandomDraw& draw) {
  const std::uint64_t seed = draw.seed_at == nullptr ? draw.seed : static_cast<std::uint64_t>(*draw.seed_at);
  const std::uint64_t first = draw.offset_at == nullptr ? 0 : static_cast<std::uint64_t>(*draw.offset_at);
  return at::detail::createCPUGenerator(mixed(seed, first + draw.offset));
}

}  // namespace lockstep::fake_gpu
