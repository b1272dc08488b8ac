// SPDX-License-Identifier: BSD-3-Clause
#include "digest.hpp"

#define XXH_INLINE_ALL  // compiled in, so that nothing more has to be linked
#include <xxhash.h>

namespace lockstep::checkpoints {

std::uint64_t digest64(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

Digest128 digest128(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

}  // namespace lockstep::checkpoints
