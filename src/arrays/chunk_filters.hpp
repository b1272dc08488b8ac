// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "arrays/hdf5_storage.hpp"

/// The filters of chunks, undone without HDF5: any number of threads can do this at the same time.
namespace lockstep::arrays {

inline constexpr H5Z_filter_t kLzf = 32000;
inline constexpr H5Z_filter_t kBitshuffle = 32008;
inline constexpr H5Z_filter_t kZstd = 32015;

/// Whether undo_filters knows all of them: shuffle, fletcher32, and at most one of deflate, lzf, zstd and bitshuffle.
bool can_undo(const std::vector<SetFilter>& filters);

/// @param filters      in the order in which they were applied
/// @param skipped      bit i is set if filter i was not applied to this chunk
/// @param stored       the chunk as it is in the file
/// @param chunk_bytes  its size without filters, which may be a lie: memory is taken only for data that have this size
/// @throws DataError  it is damaged; without a path
std::vector<std::byte> undo_filters(const std::vector<SetFilter>& filters, std::uint32_t skipped,
                                    std::vector<std::byte> stored, std::size_t chunk_bytes);

// --- lzf, zstd and bitshuffle, which HDF5 itself does not have ---

/// Whether the parameters of such a filter are known, and the libraries that it needs are there.
bool can_decode(const SetFilter& filter);
/// The size of the decoded data; none if they are damaged.
std::optional<std::size_t> decoded_size(const SetFilter& filter, std::span<const std::byte> from);
/// @param out  of the size that decoded_size gives
/// @return  false if the data are damaged
bool decode_filter(const SetFilter& filter, std::span<const std::byte> from, std::span<std::byte> out);

}  // namespace lockstep::arrays
