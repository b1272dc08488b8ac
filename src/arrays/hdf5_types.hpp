// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "arrays/array_file.hpp"
#include "checkpoints/format/hdf5.hpp"

/// Types, attributes and names of axes in HDF5 files. Callers have an HdfSession. Errors are DataErrors and
/// CheckpointErrors without a path.
namespace lockstep::arrays {

/// @throws DataError  its elements are not numbers
NumberType number_type_of(hid_t stored_type);

/// The type of the same numbers in memory.
checkpoints::Handle memory_type(const NumberType& type);

/// Numbers and texts; attributes of other types are left out.
Attributes attributes_of_object(hid_t object);

/// The elements of a data set of texts; none if they are of another type.
std::vector<std::string> texts_of_set(hid_t set);

/// The names of objects in a file by the references to them, which HDF5 looks for in the whole file.
using ReferenceNames = std::map<hobj_ref_t, std::string>;

/// The name of each axis of a data set, "" where there is none.
/// @param own_name  last part of the path of the data set
/// @param known     names that were found before, in the same file
std::vector<std::string> axis_names(hid_t set, const ArrayInfo& array, const std::string& own_name,
                                    ReferenceNames& known);

/// The last part of a path.
std::string last_part(const std::string& path);

}  // namespace lockstep::arrays
