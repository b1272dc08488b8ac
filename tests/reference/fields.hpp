// SPDX-License-Identifier: BSD-3-Clause
// Functions that the tests of topic `fields` share.
#pragma once

#include <lockstep/core/keys.hpp>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "models_golden.hpp"
#include "support/reference.hpp"

namespace lockstep::data {
class FieldDataset;
struct Splits;
}  // namespace lockstep::data

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
void run_statistics_case(const Json& one_case);
void check_well_items();
void check_given_statistics();

/// The numbers of an npy file of the topic.
std::vector<double> npy_numbers(const std::string& path);
/// The training part of data.name=fields.
const data::FieldDataset& fields_of(const data::Splits& splits);

/// The section `data` of a case.
Section fields_section(const Json& one_case);
void run_rollout_case(const Json& one_case);
/// The cases of models.json.
Handler field_models();
/// The keys of a model by the fields `family` and `arguments`.
std::map<std::string, std::string> field_model_keys(const Json& model);
/// The matrices of frequencies are complex there, and pairs here.
std::vector<StateEntry> complex_state(std::vector<StateEntry> entries);

}  // namespace lockstep::testing::reference
