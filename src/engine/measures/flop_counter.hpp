// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>

namespace lockstep::engine {

/// Counts the floating-point operations of the matrix products, convolutions and attentions that the current thread
/// executes during the lifetime of the counter. A multiplication and an addition count as two operations; causal
/// attention counts as complete attention. Other operations are not counted, as in Chowdhery et al., "PaLM" (2022),
/// appendix B. One at a time per thread.
class FlopCounter {
 public:
  FlopCounter();
  ~FlopCounter();
  FlopCounter(const FlopCounter&) = delete;
  FlopCounter& operator=(const FlopCounter&) = delete;

  std::int64_t count() const noexcept { return count_; }

 private:
  std::int64_t count_ = 0;
  std::uint64_t callback_;
};

/// The floating-point operations per second of a matrix product of this type on this device, measured in about 50 ms.
/// Does not use random numbers.
double measured_peak_flops(const c10::Device& device, c10::ScalarType type);

}  // namespace lockstep::engine
