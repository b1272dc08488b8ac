// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

/// Decoders of compressed bytes. Their input can be damaged. Thread-safe.
namespace lockstep::arrays {

/// Whether Lockstep was built with liblz4 and libzstd. If not, decode_lz4 and decode_zstd always fail.
bool has_lz4_and_zstd();

/// Decodes a zlib stream (deflate).
/// @return  false if it is damaged, or has another size than `out`
bool inflate(std::span<const std::byte> from, std::span<std::byte> out);

/// Decodes a block of LZ4.
/// @return  false if it is damaged, or has another size than `out`
bool decode_lz4(std::span<const std::byte> from, std::span<std::byte> out);

/// The size that a frame of zstd states for its content; none if it does not, or if so few bytes cannot hold so many.
std::optional<std::size_t> decoded_zstd_size(std::span<const std::byte> from);

/// Decodes frames of zstd.
/// @return  false if they are damaged, or have another size than `out`
bool decode_zstd(std::span<const std::byte> from, std::span<std::byte> out);

}  // namespace lockstep::arrays
