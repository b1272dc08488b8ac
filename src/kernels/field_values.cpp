// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/field_values.hpp"

#include "core/numbers/processor_level.hpp"

namespace lockstep::kernels {

namespace {

template <bool kFillsGaps>
LOCKSTEP_INLINE void standardize_values(std::int64_t count, const float* input, float shift, float scale,
                                        float* output) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = (input[i] - shift) / scale;
    output[i] = kFillsGaps && value != value ? 0.0F : value;
  }
}

}  // namespace

void standardize(std::int64_t count, const float* input, float shift, float scale, bool fills_gaps, float* output) {
  const auto run = fills_gaps ? at_level<standardize_values<true>> : at_level<standardize_values<false>>;
  run(count, input, shift, scale, output);
}

}  // namespace lockstep::kernels
