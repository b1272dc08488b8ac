// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/copies.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lockstep::kernels {

void copy_past_caches(std::span<const std::byte> source, std::byte* target) noexcept {
  if (source.empty()) return;
#if defined(__x86_64__)
  constexpr std::size_t kLine = 64;
  // Such writes need a multiple of their size as address, and are best in whole lines.
  const std::size_t gap = (kLine - reinterpret_cast<std::uintptr_t>(target) % kLine) % kLine;
  const std::size_t before = std::min(gap, source.size());
  std::memcpy(target, source.data(), before);
  source = source.subspan(before);
  target += before;
  while (source.size() >= kLine) {
    const auto* const from = reinterpret_cast<const __m128i*>(source.data());
    auto* const written = reinterpret_cast<__m128i*>(target);
    const __m128i line[] = {_mm_loadu_si128(from), _mm_loadu_si128(from + 1), _mm_loadu_si128(from + 2),
                            _mm_loadu_si128(from + 3)};
    for (int i = 0; i < 4; ++i) _mm_stream_si128(written + i, line[i]);
    source = source.subspan(kLine);
    target += kLine;
  }
  _mm_sfence();  // orders these writes like all others
  if (source.empty()) return;
#endif
  std::memcpy(target, source.data(), source.size());
}

}  // namespace lockstep::kernels
