// SPDX-License-Identifier: BSD-3-Clause
#include "support/reference.hpp"

#include <lockstep/core/dtype.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <set>
#include <stdexcept>

namespace lockstep::testing::reference {

namespace {

namespace fs = std::filesystem;

fs::path source_root() {
  const char* const given = std::getenv("LOCKSTEP_SOURCE_DIR");
  return given != nullptr && *given != '\0' ? given : LOCKSTEP_SOURCE_DIR;
}

/// The lines of pending.txt: "topic/file.json", or "topic/" for all of a topic.
std::set<std::string> read_pending() {
  const fs::path path = source_root() / "tests/reference/pending.txt";
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  std::set<std::string> pending;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.front() == '#') continue;
    if (line.find('/') == std::string::npos) throw std::runtime_error(path.string() + ": '" + line + "' has no topic");
    pending.insert(line);
  }
  return pending;
}

/// Names inside `folder`, folders below it included, in order.
std::vector<std::string> json_files_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(folder, fs::directory_options::follow_directory_symlink)) {
    if (entry.path().extension() == ".json") names.push_back(fs::relative(entry.path(), folder).generic_string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool is_pending(const std::set<std::string>& pending, const std::string& topic, const std::string& file) {
  return pending.contains(topic + "/") || pending.contains(topic + "/" + file);
}

/// Names a case for messages: by its `name`, its `kind` or only its place.
std::string title_of(const Json& one_case, std::size_t place) {
  std::string title = "case " + std::to_string(place);
  for (const char* field : {"name", "kind"}) {
    if (one_case.is_object() && one_case.contains(field)) return title + " " + one_case.at(field).dump();
  }
  return title;
}

void run_case(const Handler& handler, const Json& one_case, const std::string& title) {
  SCOPED_TRACE(title);
  try {
    handler.run(one_case);
  } catch (const std::exception& error) {
    ADD_FAILURE() << title << ": " << error.what();
  }
}

/// @return  cases run
std::size_t run_file(const Handler& handler, const std::string& path) {
  const Json document = load(path);
  std::vector<std::string> known = {"source", "how", "tolerance"};
  if (handler.run) known.emplace_back("cases");
  known.insert(known.end(), handler.extra_fields.begin(), handler.extra_fields.end());
  require_known_fields(document, known);
  if (!handler.run) return 0;
  const Json& cases = document.at("cases");
  if (!cases.is_array() || cases.empty()) throw std::runtime_error("it has no list of cases");
  for (std::size_t i = 0; i < cases.size(); ++i) run_case(handler, cases[i], path + ", " + title_of(cases[i], i));
  return cases.size();
}

std::size_t run_file_or_fail(const Handler& handler, const std::string& path) {
  try {
    return run_file(handler, path);
  } catch (const std::exception& error) {
    ADD_FAILURE() << path << ": " << error.what();
    return 0;
  }
}

/// Stored decimals give the value back only once rounded to their type.
double rounded(double value, const std::string& dtype) {
  if (dtype == "float32") return static_cast<float>(value);
  if (dtype == "float16") return half_to_float(float_to_half(static_cast<float>(value)));
  if (dtype == "bfloat16") return bfloat16_to_float(float_to_bfloat16(static_cast<float>(value)));
  return value;
}

}  // namespace

fs::path root() {
  const char* const given = std::getenv("LOCKSTEP_SHARED");
  const fs::path shared = given != nullptr && *given != '\0' ? given : "../shared";
  return source_root() / shared / "reference";  // an absolute `shared` replaces what stands before it
}

Json load(const std::string& path) {
  const fs::path full_path = root() / path;
  std::ifstream file(full_path);
  if (!file) throw std::runtime_error("cannot read " + full_path.string());
  try {
    return Json::parse(file);
  } catch (const Json::exception& error) {
    throw std::runtime_error(full_path.string() + " is malformed: " + error.what());
  }
}

void run_topic(const std::string& topic, const std::vector<Handler>& handlers) {
  const fs::path folder = root() / topic;
  if (!fs::is_directory(folder)) GTEST_SKIP() << "no reference data for " << topic << " in " << root();
  const std::set<std::string> pending = read_pending();
  std::size_t cases = 0;
  std::size_t pending_files = 0;
  const std::vector<std::string> files = json_files_in(folder);
  for (const std::string& file : files) {
    const std::string path = topic + "/" + file;
    const auto handler =
        std::find_if(handlers.begin(), handlers.end(), [&file](const Handler& row) { return row.file == file; });
    const bool is_handled = handler != handlers.end();
    if (is_pending(pending, topic, file)) {
      ++pending_files;
      EXPECT_FALSE(is_handled) << path << " is tested: take it out of tests/reference/pending.txt";
    } else if (!is_handled) {
      ADD_FAILURE() << path << ": no test knows this file, and tests/reference/pending.txt does not list it";
    } else {
      cases += run_file_or_fail(*handler, path);
    }
  }
  const bool is_all_pending = !files.empty() && pending_files == files.size();
  EXPECT_TRUE(cases > 0 || is_all_pending) << "no case of " << folder << " was run";
}

void check_coverage(const std::vector<std::string>& handled) {
  if (!fs::is_directory(root())) GTEST_SKIP() << "no reference data in " << root();
  const std::set<std::string> pending = read_pending();
  for (const auto& entry : fs::directory_iterator(root())) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_directory()) {
      EXPECT_NE(entry.path().extension(), ".json") << name << " stands outside of any topic: no test knows it";
      continue;
    }
    if (std::find(handled.begin(), handled.end(), name) != handled.end() || pending.contains(name + "/")) continue;
    const std::vector<std::string> files = json_files_in(entry.path());
    EXPECT_FALSE(files.empty()) << "no test knows the topic " << name << ", and it has no files to list as pending";
    for (const std::string& file : files) {
      EXPECT_TRUE(is_pending(pending, name, file))
          << name << "/" << file
          << ": no test knows this topic, and tests/reference/pending.txt does not list the file";
    }
  }
}

void require_known_fields(const Json& object, const std::vector<std::string>& known) {
  if (!object.is_object()) throw std::runtime_error("not an object: " + object.dump().substr(0, 60));
  for (const auto& [name, value] : object.items()) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      throw std::runtime_error("no test knows the field '" + name + "'");
    }
  }
}

double number(const Json& value) {
  if (value.is_number()) return value.get<double>();
  const std::string text = value.is_string() ? value.get<std::string>() : "";
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  throw std::runtime_error("not a number: " + value.dump().substr(0, 60));
}

Numbers numbers(const Json& tensor) {
  if (tensor.is_number()) return {.dtype = "float64", .shape = {}, .data = {tensor.get<double>()}};
  require_known_fields(tensor, {"dtype", "shape", "data"});
  Numbers result{.dtype = tensor.at("dtype"), .shape = tensor.at("shape"), .data = {}};
  for (const Json& value : tensor.at("data")) result.data.push_back(rounded(number(value), result.dtype));
  std::int64_t count = 1;
  for (const std::int64_t size : result.shape) count *= size;
  if (count != static_cast<std::int64_t>(result.data.size())) throw std::runtime_error("data do not fill their shape");
  return result;
}

bool is_close(double actual, double expected, const Tolerance& tolerance) {
  if (std::isnan(expected)) return std::isnan(actual);
  if (actual == expected) return true;
  if (std::isinf(expected)) return false;
  return std::abs(actual - expected) <= tolerance.absolute + tolerance.relative * std::abs(expected);
}

void expect_close(const std::vector<double>& actual, const std::vector<double>& expected, const Tolerance& tolerance,
                  const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (is_close(actual[i], expected[i], tolerance)) continue;
    ADD_FAILURE() << what << "[" << i << "]: " << Json(actual[i]) << " instead of " << Json(expected[i]) << ", off by "
                  << actual[i] - expected[i];
    return;
  }
}

}  // namespace lockstep::testing::reference
