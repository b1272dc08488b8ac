// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/format/digest.hpp"

#define XXH_INLINE_ALL  // compiled in, so that nothing more has to be linked
#include <xxhash.h>

#include <cstdio>

namespace lockstep::checkpoints {

std::uint64_t digest64(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

Digest128 digest128(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

Digest128 digest_of_pieces(std::span<const std::uint64_t> digests) { return digest128(std::as_bytes(digests)); }

std::string hex_of(const Digest128& digest) {
  std::string text(33, '\0');
  std::snprintf(text.data(), text.size(), "%016llx%016llx", static_cast<unsigned long long>(digest.high),
                static_cast<unsigned long long>(digest.low));
  text.resize(32);
  return text;
}

}  // namespace lockstep::checkpoints
