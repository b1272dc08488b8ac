// SPDX-License-Identifier: BSD-3-Clause
#include "support/reference.hpp"

#include <lockstep/core/tensor.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <limits>
#include <stdexcept>

namespace lockstep::testing::reference {

namespace {

namespace fs = std::filesystem;

constexpr const char* kPendingFile = "tests/reference/pending.txt";

/// One line of pending.txt.
struct PendingLine {
  std::string text;
  std::string path;  ///< "topic/file.json", or with a '/' at the end everything in a topic or in a folder of it
  std::string part;  ///< a field of the file, or a prefix of the names of its entries; empty for the whole file

  std::string topic() const { return path.substr(0, path.find('/')); }
  bool is_folder() const { return path.back() == '/'; }
};

std::vector<PendingLine> read_pending() {
  const fs::path path = source_root() / kPendingFile;
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  std::vector<PendingLine> lines;
  for (std::string text; std::getline(file, text);) {
    if (text.empty() || text.front() == '#') continue;
    const std::size_t border = text.find('#');
    PendingLine line{.text = text, .path = text.substr(0, border), .part = {}};
    const auto fault = [&](const std::string& what) {
      return std::runtime_error(path.string() + ": '" + text + "' " + what);
    };
    if (line.path.find('/') == std::string::npos) throw fault("has no topic");
    if (border != std::string::npos) {
      line.part = text.substr(border + 1);
      if (line.part.empty()) throw fault("names no field or entry after '#'");
      if (line.is_folder()) throw fault("names a part of a folder; '#' follows the name of a file");
    }
    lines.push_back(line);
  }
  return lines;
}

/// Names inside `folder`, folders below it included, in order.
std::vector<std::string> json_files_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(folder, fs::directory_options::follow_directory_symlink)) {
    fs::path name = fs::relative(entry.path(), folder);
    if (name.extension() == ".gz") name.replace_extension();
    if (name.extension() == ".json") names.push_back(name.generic_string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// Whether the whole file is pending.
bool covers_file(const PendingLine& line, const std::string& path) {
  return line.part.empty() && (line.is_folder() ? path.starts_with(line.path) : line.path == path);
}

bool is_file_pending(const std::vector<PendingLine>& pending, const std::string& path) {
  return std::any_of(pending.begin(), pending.end(), [&](const PendingLine& line) { return covers_file(line, path); });
}

bool is_head_field(const std::string& name) { return name == "source" || name == "how" || name == "tolerance"; }

/// The names by which pending.txt knows an element of a list of entries.
std::vector<std::string> names_of_entry(const Json& entry) {
  std::vector<std::string> names;
  for (const char* field : {"name", "source"}) {
    if (entry.is_object() && entry.contains(field) && entry.at(field).is_string()) names.push_back(entry.at(field));
  }
  return names;
}

/// The names of all entries: of the elements of lists, and the keys of objects, that are fields of the file.
std::vector<std::string> entries_of(const Json& document) {
  std::vector<std::string> names;
  for (const auto& [field, value] : document.items()) {
    if (value.is_object()) {
      for (const auto& [name, entry] : value.items()) names.push_back(name);
    } else if (value.is_array()) {
      for (const Json& entry : value) {
        for (const std::string& name : names_of_entry(entry)) names.push_back(name);
      }
    }
  }
  return names;
}

/// A part that is a field stands for this field only, any other for the entries whose names begin with it.
bool covers_entry(const std::string& part, const std::string& entry, const Json& document) {
  if (document.contains(part)) return entry == part;
  return entry.starts_with(part);
}

/// Whether a line leaves out `entry` of the file at `path`; prints what it leaves out.
bool is_left_out(const std::vector<PendingLine>& pending, const std::string& path, const Json& document,
                 const std::string& entry) {
  const bool is_left_out = std::any_of(pending.begin(), pending.end(), [&](const PendingLine& line) {
    if (line.part.empty()) return covers_file(line, path);
    return line.path == path && covers_entry(line.part, entry, document);
  });
  if (is_left_out) std::cout << "[ PENDING  ] " << path << "#" << entry << "\n";
  return is_left_out;
}

/// The fault in a line; empty if nothing is. A variant of the reference may leave out whole topics, and the
/// clone's own files come with the tests that read them.
std::string fault_of(const PendingLine& line, const std::vector<PendingLine>& pending) {
  if (!fs::is_directory(root() / line.topic())) return "";
  if (!fs::exists(golden(line.path))) return is_golden_folder_complete() ? "the file or folder does not exist" : "";
  if (line.part.empty()) return "";
  if (is_file_pending(pending, line.path)) return "another line lists the whole file";
  const Json document = load(line.path);
  if (!document.is_object()) return "the file is not an object";
  if (document.contains(line.part)) return is_head_field(line.part) ? "every test reads this field" : "";
  const std::vector<std::string> entries = entries_of(document);
  const bool has_entry = std::any_of(entries.begin(), entries.end(),
                                     [&](const std::string& entry) { return entry.starts_with(line.part); });
  return has_entry ? "" : "the file has no such field, and no entry whose name or source begins so";
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

/// The elements of a list, or the members of an object, each with its key as field `name`.
Json list_of_cases(const Json& cases) {
  if (!cases.is_object()) return cases;
  Json list = Json::array();
  for (const auto& [name, value] : cases.items()) {
    if (!value.is_object()) throw std::runtime_error("the case " + name + " is not an object");
    list.push_back(value);
    list.back()["name"] = name;
  }
  return list;
}

/// @return  cases run
std::size_t run_file(const Handler& handler, const std::string& path, const std::vector<PendingLine>& pending) {
  const Json document = load(path);
  std::vector<std::string> known = {"source", "how", "tolerance"};
  if (handler.run) known.emplace_back("cases");
  known.insert(known.end(), handler.extra_fields.begin(), handler.extra_fields.end());
  for (const auto& [field, value] : document.items()) {
    const bool is_known = std::find(known.begin(), known.end(), field) != known.end();
    if (!is_known && is_left_out(pending, path, document, field)) known.push_back(field);
  }
  require_known_fields(document, known);
  if (!handler.run) return 0;
  const Json cases = list_of_cases(document.at("cases"));
  if (!cases.is_array() || cases.empty()) throw std::runtime_error("it has no list of cases");
  std::size_t count = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const std::vector<std::string> names = names_of_entry(cases[i]);
    const auto is_out = [&](const std::string& name) { return is_left_out(pending, path, document, name); };
    if (std::any_of(names.begin(), names.end(), is_out)) continue;
    run_case(handler, cases[i], path + ", " + title_of(cases[i], i));
    ++count;
  }
  return count;
}

std::size_t run_file_or_fail(const Handler& handler, const std::string& path, const std::vector<PendingLine>& pending) {
  try {
    return run_file(handler, path, pending);
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

Json load(const std::string& path) {
  const std::string text = read_golden(path);
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {
    throw std::runtime_error((root() / path).string() + " is malformed: " + error.what());
  }
}

bool is_pending(const std::string& file, const std::string& entry) {
  return is_left_out(read_pending(), file, load(file), entry);
}

void run_topic(const std::string& topic, const std::vector<Handler>& handlers) {
  const fs::path folder = root() / topic;
  if (!fs::is_directory(folder)) GTEST_SKIP() << "no reference data for " << topic << " in " << root();
  const std::vector<PendingLine> pending = read_pending();
  std::size_t cases = 0;
  std::size_t pending_files = 0;
  const std::vector<std::string> files = json_files_in(folder);
  for (const std::string& file : files) {
    const std::string path = topic + "/" + file;
    const auto handler =
        std::find_if(handlers.begin(), handlers.end(), [&file](const Handler& row) { return row.file == file; });
    const bool is_handled = handler != handlers.end();
    if (is_file_pending(pending, path)) {
      ++pending_files;
      EXPECT_FALSE(is_handled) << path << " is tested: take it out of " << kPendingFile;
    } else if (!is_handled) {
      ADD_FAILURE() << path << ": no test knows this file, and " << kPendingFile << " does not list it";
    } else {
      cases += run_file_or_fail(*handler, path, pending);
    }
  }
  const bool is_all_pending = !files.empty() && pending_files == files.size();
  EXPECT_TRUE(cases > 0 || is_all_pending) << "no case of " << folder << " was run";
}

void check_coverage(const std::vector<std::string>& handled) {
  if (!fs::is_directory(root())) GTEST_SKIP() << "no reference data in " << root();
  const std::vector<PendingLine> pending = read_pending();
  for (const PendingLine& line : pending) {
    const std::string fault = fault_of(line, pending);
    EXPECT_TRUE(fault.empty()) << kPendingFile << ": '" << line.text << "': " << fault;
  }
  for (const auto& entry : fs::directory_iterator(root())) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_directory()) {
      EXPECT_NE(entry.path().extension(), ".json") << name << " stands outside of any topic: no test knows it";
      continue;
    }
    if (std::find(handled.begin(), handled.end(), name) != handled.end()) continue;
    if (is_file_pending(pending, name + "/")) continue;
    const std::vector<std::string> files = json_files_in(entry.path());
    EXPECT_FALSE(files.empty()) << "no test knows the topic " << name << ", and it has no files to list as pending";
    for (const std::string& file : files) {
      const std::string path = name + "/" + file;
      EXPECT_TRUE(is_file_pending(pending, path))
          << path << ": no test knows this topic, and " << kPendingFile << " does not list the whole file";
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

StoredNumbers numbers(const Json& tensor) {
  if (tensor.is_number()) return {.dtype = "float64", .shape = {}, .data = {tensor.get<double>()}};
  require_known_fields(tensor, {"dtype", "shape", "data"});
  StoredNumbers result{.dtype = tensor.at("dtype"), .shape = tensor.at("shape"), .data = {}};
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
