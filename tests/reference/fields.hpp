// SPDX-License-Identifier: BSD-3-Clause
// Functions that the tests of topic `fields` share.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "support/reference.hpp"

namespace lockstep::testing::reference {

/// The file of a path in the topic. Other files that it names are beside it.
std::filesystem::path field_file(const std::string& path);

/// A stored array: its elements as they are in memory, row-major.
struct StoredArray {
  std::string dtype;  ///< NumPy's name, such as "int16"
  std::vector<std::int64_t> shape;
  std::string bytes;
};
/// Reads {"npy", "dtype", "shape"}.
StoredArray stored_array(const Json& entry);
/// The same as numbers.
std::vector<double> stored_values(const Json& entry);

// One function for each file or field of the topic.
void run_files_case(const Json& one_case);
void check_times();
void run_windows_case(const Json& one_case);
void check_window_counts();
void check_pdebench_splits();
void run_malformed_case(const Json& one_case);
/// The cases of models.json.
Handler field_models();

}  // namespace lockstep::testing::reference
