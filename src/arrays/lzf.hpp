// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <optional>
#include <span>

/// LZF, the fast compression of h5py: a sequence of copies, either of the bytes that follow, or of earlier output.
namespace lockstep::arrays {

/// The number of bytes that decode_lzf writes; none if the input is damaged.
std::optional<std::size_t> decoded_lzf_size(std::span<const std::byte> from);

/// @param out  receives decoded_lzf_size(from) bytes
/// @return     false if the input is damaged, or does not fill `out`
bool decode_lzf(std::span<const std::byte> from, std::span<std::byte> out);

}  // namespace lockstep::arrays
