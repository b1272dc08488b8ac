// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include "arrays/array_file.hpp"
#include "arrays/input_file.hpp"

/// NumPy's files. An npy file has one array, which has no name; an npz file is a zip archive with one for each name.
/// They have no attributes.
namespace lockstep::arrays {

/// @throws DataError  the file is damaged, or its elements are not numbers
std::shared_ptr<const ArrayFile> open_npy(std::shared_ptr<const InputFile> file);

/// Arrays that are stored are read from the file. A compressed one is unpacked when it is first read, and stays in
/// memory as long as the file is open.
/// @throws DataError  the archive is damaged
std::shared_ptr<const ArrayFile> open_npz(std::shared_ptr<const InputFile> file);

}  // namespace lockstep::arrays
