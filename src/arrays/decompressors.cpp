// SPDX-License-Identifier: BSD-3-Clause
// With libdeflate, liblz4 and libzstd. The alternative is zlib_decompressor.cpp.
#include "arrays/decompressors.hpp"

#include <libdeflate.h>
#include <lz4.h>
#include <zstd.h>

#include <limits>
#include <memory>
#include <new>

namespace lockstep::arrays {

namespace {

/// A decoder of each thread.
template <class Decoder, auto kNew, auto kDelete>
Decoder* own_decoder() {
  struct Delete {
    void operator()(Decoder* decoder) const { kDelete(decoder); }
  };
  thread_local const std::unique_ptr<Decoder, Delete> decoder(kNew());
  if (decoder == nullptr) throw std::bad_alloc();
  return decoder.get();
}

}  // namespace

bool has_lz4_and_zstd() { return true; }

bool inflate(std::span<const std::byte> from, std::span<std::byte> out) {
  auto* const decoder =
      own_decoder<libdeflate_decompressor, libdeflate_alloc_decompressor, libdeflate_free_decompressor>();
  return libdeflate_zlib_decompress(decoder, from.data(), from.size(), out.data(), out.size(), nullptr) ==
         LIBDEFLATE_SUCCESS;
}

bool decode_lz4(std::span<const std::byte> from, std::span<std::byte> out) {
  constexpr std::size_t kMax = std::numeric_limits<int>::max();
  if (from.size() > kMax || out.size() > kMax) return false;
  const int size = LZ4_decompress_safe(reinterpret_cast<const char*>(from.data()), reinterpret_cast<char*>(out.data()),
                                       static_cast<int>(from.size()), static_cast<int>(out.size()));
  return size >= 0 && static_cast<std::size_t>(size) == out.size();
}

std::optional<std::size_t> decoded_zstd_size(std::span<const std::byte> from) {
  constexpr unsigned long long kMaxRatio = std::size_t{1} << 15;  // a block of 128 KiB has at least 4 bytes
  const unsigned long long size = ZSTD_getFrameContentSize(from.data(), from.size());
  if (size == ZSTD_CONTENTSIZE_UNKNOWN || size == ZSTD_CONTENTSIZE_ERROR || size / kMaxRatio > from.size()) {
    return std::nullopt;
  }
  return static_cast<std::size_t>(size);
}

bool decode_zstd(std::span<const std::byte> from, std::span<std::byte> out) {
  auto* const decoder = own_decoder<ZSTD_DCtx, ZSTD_createDCtx, ZSTD_freeDCtx>();
  return ZSTD_decompressDCtx(decoder, out.data(), out.size(), from.data(), from.size()) == out.size();
}

}  // namespace lockstep::arrays
