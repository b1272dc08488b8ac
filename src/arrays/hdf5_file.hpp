// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include "arrays/array_file.hpp"
#include "arrays/input_file.hpp"

/// HDF5 files, and with them netCDF-4 files. Links and virtual data sets lead to other files, which are looked for in
/// the folder of the file that names them.
namespace lockstep::arrays {

/// @throws DataError  HDF5 cannot open it
std::shared_ptr<const ArrayFile> open_hdf5(std::shared_ptr<const InputFile> file);

}  // namespace lockstep::arrays
