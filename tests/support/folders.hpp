// SPDX-License-Identifier: BSD-3-Clause
// The folders of golden files, which are stored results of other libraries, and of sample data. Relative paths in the
// environment count from the source root.
#pragma once

#include <filesystem>
#include <string>

namespace lockstep::testing {

/// LOCKSTEP_SOURCE_DIR, by default the clone that this program was compiled from.
std::filesystem::path source_root();

/// LOCKSTEP_GOLDEN, else the folder `reference` in LOCKSTEP_SHARED, else tests/golden.
std::filesystem::path golden_folder();
/// Whether golden_folder() is the one in LOCKSTEP_SHARED, which holds all files that pending.txt lists.
bool is_golden_folder_complete();
/// The golden file or folder `name`. A file is stored as NAME or as NAME.gz, which is unpacked into the build folder;
/// so are the files of a folder. A path that does not exist if there is neither.
std::filesystem::path golden(const std::string& name);
/// The bytes of the golden file `name`.
/// @throws std::runtime_error  it cannot be read, naming it
std::string read_golden(const std::string& name);

/// The file or folder `name` of LOCKSTEP_DATA, else of the folder `data` in LOCKSTEP_SHARED, else of tests/data.
std::filesystem::path sample_data(const std::string& name);

}  // namespace lockstep::testing
