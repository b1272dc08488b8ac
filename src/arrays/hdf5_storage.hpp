// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "arrays/array_file.hpp"
#include "checkpoints/format/hdf5.hpp"

/// The storage of data sets of HDF5, and whether it can be read. Callers have an HdfSession. Errors are DataErrors and
/// CheckpointErrors without a path.
namespace lockstep::arrays {

/// One filter of a data set, with its parameters.
struct SetFilter {
  H5Z_filter_t number = 0;
  std::vector<unsigned> values;
};

/// The storage of a data set.
struct SetStorage {
  ArrayStorage info;
  std::vector<SetFilter> filters;  ///< the first one was applied first
  /// Position of the elements in the file in which the data set lies, if they are there one after the other and as they
  /// are in memory, but for the order of bytes.
  std::optional<std::uint64_t> offset;
  /// An element of chunks that were never written, as it is stored. Empty if chunks cannot be read without HDF5.
  std::vector<std::byte> fill;
};

/// The size of a chunk without filters.
std::uint64_t chunk_bytes_of(const std::vector<std::int64_t>& chunk, const NumberType& type);

/// Starts the filters that HDF5 itself does not have.
void register_filters();

/// Opens a file. Locks stay as HDF5 and its variable HDF5_USE_FILE_LOCKING choose: it cannot open a file twice with and
/// without, and would read the sources of virtual data sets as fill values.
checkpoints::Handle open_to_read(const std::string& path);

/// Opens a data set. The files of one with external files are looked for in the folder of its file. All others have
/// the default access list: HDF5 cannot open a data set twice with different ones, and would read the sources of
/// virtual data sets as fill values.
/// @return  none if it cannot be opened
std::optional<checkpoints::Handle> open_set_to_read(hid_t file, const std::string& name);

/// @throws DataError  it cannot be read: an unknown filter, or another file that it needs is not there
SetStorage storage_of(hid_t set, const NumberType& type);

/// The path of the file in which an object lies.
std::string file_of(hid_t object);

}  // namespace lockstep::arrays
