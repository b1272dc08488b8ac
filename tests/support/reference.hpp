// SPDX-License-Identifier: BSD-3-Clause
// Tests against stored results of other libraries: every case of every JSON file in the folder of golden
// files, so that other files of the same format can be put in their place. Topics and files that no test knows fail by
// name.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "support/folders.hpp"

namespace lockstep::testing::reference {

using Json = nlohmann::json;

/// The function that a test does with one file of its topic, known by its name inside the topic's folder.
struct Handler {
  std::string file;
  /// Fields beside source, how, tolerance and cases.
  std::vector<std::string> extra_fields = {};
  /// Runs one element of `cases`, or one member of an object with its key as field `name`: throws, or fails
  /// expectations. Empty for a file of inputs, which has no cases.
  std::function<void(const Json& one_case)> run = {};
};

/// The folder of golden files.
inline std::filesystem::path root() { return golden_folder(); }
/// The golden file at `path`, which may be packed.
/// @throws std::runtime_error  unreadable or malformed, naming it
Json load(const std::string& path);

/// Runs every case of every file in the folder `topic`, as a part of a test: skips it if there is no such folder, fails
/// it by name for a file that is neither handled nor pending, and if no case was run although some file is not pending.
void run_topic(const std::string& topic, const std::vector<Handler>& handlers);
/// Whether pending.txt lists `entry` of `file`, which is "topic/file.json": a field, or an entry by its name or source.
/// Prints its name if so, because a test then skips it. run_topic itself skips pending fields and elements of `cases`.
bool is_pending(const std::string& file, const std::string& entry);
/// Fails by name each topic folder that is not among `handled` and holds a file that is not pending as a whole. Fails
/// also each line of pending.txt that names a field or entry that does not exist. A file or folder may be absent with
/// its whole topic, and unless the folder of golden files is complete.
void check_coverage(const std::vector<std::string>& handled);

/// @throws std::runtime_error  `object` has a field that is not among `known`: a case of an unknown kind
void require_known_fields(const Json& object, const std::vector<std::string>& known);

/// A stored tensor; `data` are rounded to its type.
struct StoredNumbers {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::vector<double> data;
};
/// Reads {"dtype", "shape", "data"}; a bare number is a float64 scalar.
/// @throws std::runtime_error  malformed, or data that do not fill the shape
StoredNumbers numbers(const Json& tensor);
/// A number, or "nan", "inf", "-inf".
double number(const Json& value);

/// |actual - expected| <= absolute + relative * |expected| for every element, equal infinities and NaN being equal.
struct Tolerance {
  double absolute = 0;
  double relative = 0;
};
bool is_close(double actual, double expected, const Tolerance& tolerance);
/// Fails the test at the first element of `actual` that is not close to `expected`.
void expect_close(const std::vector<double>& actual, const std::vector<double>& expected, const Tolerance& tolerance,
                  const std::string& what);

}  // namespace lockstep::testing::reference
