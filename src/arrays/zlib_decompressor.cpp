// SPDX-License-Identifier: BSD-3-Clause
// Without libdeflate, liblz4 and libzstd. The alternative is decompressors.cpp.
#include <zlib.h>

#include "arrays/decompressors.hpp"

namespace lockstep::arrays {

bool has_lz4_and_zstd() { return false; }

bool inflate(std::span<const std::byte> from, std::span<std::byte> out) {
  uLongf size = out.size();
  const int result =
      uncompress(reinterpret_cast<Bytef*>(out.data()), &size, reinterpret_cast<const Bytef*>(from.data()), from.size());
  return result == Z_OK && size == out.size();
}

bool decode_lz4(std::span<const std::byte>, std::span<std::byte>) { return false; }

std::optional<std::size_t> decoded_zstd_size(std::span<const std::byte>) { return std::nullopt; }

bool decode_zstd(std::span<const std::byte>, std::span<std::byte>) { return false; }

}  // namespace lockstep::arrays
