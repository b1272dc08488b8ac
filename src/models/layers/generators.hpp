// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/random/random.hpp>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <optional>

namespace lockstep::models {

/// Seeds LibTorch's default generator from counters: whatever LibTorch draws next (initial values, dropout) is a pure
/// function of the arguments, so no generator state decides a resume.
/// @param a  for Stream::forward the step
/// @param b  for Stream::forward the rank and micro_batch, combined by the caller
/// @param device  whose generator is seeded, too
void seed_generators(std::uint64_t seed, random::Stream stream, std::uint64_t a, std::uint64_t b = 0,
                     c10::Device device = c10::kCPU);

/// While work of a device is recorded in a graph, its generator has no state, but a place in the numbers of the graph.
struct RecordedDraws {
  std::function<std::uint64_t()> place;
  std::function<void(std::uint64_t)> return_to;
};

/// During its lifetime, GeneratorStates in all threads are those of a recording. One at a time.
class ScopedRecordedDraws {
 public:
  explicit ScopedRecordedDraws(RecordedDraws draws);
  ~ScopedRecordedDraws();
  ScopedRecordedDraws(const ScopedRecordedDraws&) = delete;
  ScopedRecordedDraws& operator=(const ScopedRecordedDraws&) = delete;

 private:
  RecordedDraws draws_;
};

/// The states of LibTorch's default generators of the CPU and of a device.
class GeneratorStates {
 public:
  static GeneratorStates now(c10::Device device);
  /// Whatever is drawn next is what was drawn after `now`.
  void establish() const;
  c10::Device device() const noexcept { return device_; }

 private:
  explicit GeneratorStates(c10::Device device) : device_(device) {}

  c10::Device device_;
  at::Tensor of_cpu_;
  at::Tensor of_device_;                   // undefined = the device is the CPU, or recorded
  std::optional<std::uint64_t> recorded_;  // the place in the numbers of the graph
};

}  // namespace lockstep::models
