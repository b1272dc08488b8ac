// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "arrays/hdf5_storage.hpp"

/// The filters of chunks, undone without HDF5: any number of threads can do this at the same time.
namespace lockstep::arrays {

/// Whether undo_filters knows all of them: deflate or lzf at most once, shuffle and fletcher32.
bool can_undo(const std::vector<SetFilter>& filters);

/// @param filters      in the order in which they were applied
/// @param skipped      bit i is set if filter i was not applied to this chunk
/// @param stored       the chunk as it is in the file
/// @param chunk_bytes  its size without filters, which may be a lie: memory is taken only for data that have this size
/// @throws DataError  it is damaged; without a path
std::vector<std::byte> undo_filters(const std::vector<SetFilter>& filters, std::uint32_t skipped,
                                    std::vector<std::byte> stored, std::size_t chunk_bytes);

}  // namespace lockstep::arrays
