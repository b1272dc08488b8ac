// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <optional>
#include <span>

/// The filter bitshuffle of HDF5 (32008), undone. The input can be damaged. Thread-safe.
namespace lockstep::arrays {

/// The compression of the blocks, as the fifth parameter of the filter states it.
enum class BlockCompression : unsigned { none = 0, lz4 = 2, zstd = 3 };

/// The parameters of the filter.
struct BitshuffleOptions {
  std::size_t element_bytes = 0;
  std::size_t block =
      0;  ///< elements of a block; 0 = as many as bitshuffle chooses. Compressed data state it themselves
  BlockCompression compression = BlockCompression::none;
};

/// The options from the parameters of the filter; none if there are too few, or an unknown compression.
std::optional<BitshuffleOptions> bitshuffle_options(std::span<const unsigned> values);

/// The size of the elements; none if the data are damaged, or if so few bytes cannot hold so many.
std::optional<std::size_t> decoded_bitshuffle_size(const BitshuffleOptions& options, std::span<const std::byte> from);

/// @return  false if the data are damaged, or have another size than `out`
bool undo_bitshuffle(const BitshuffleOptions& options, std::span<const std::byte> from, std::span<std::byte> out);

/// Restores elements from their bits: bit 0 of the first bytes of all elements, then bit 1, and so on, eight in a byte.
/// @param from  elements of `bytes` bytes; their number is a multiple of eight
/// @param out   as long as `from`
void join_bits(std::span<const std::byte> from, std::span<std::byte> out, std::size_t bytes);

}  // namespace lockstep::arrays
