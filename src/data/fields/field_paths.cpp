// SPDX-License-Identifier: BSD-3-Clause
#include "data/fields/field_paths.hpp"

#include <lockstep/core/error.hpp>

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>

#include "core/text/text.hpp"

namespace lockstep::data {

namespace {

namespace fs = std::filesystem;

bool is_field_folder(const fs::path& path) {
  std::error_code unreadable;  // counts as missing
  return fs::is_directory(path, unreadable);
}

bool is_field_file(const fs::path& path) {
  static constexpr std::array<std::string_view, 9> kEndings = {".h5",  ".hdf5", ".he5", ".hdf", ".nc",
                                                               ".nc4", ".cdf",  ".npy", ".npz"};
  return std::ranges::find(kEndings, path.extension().string()) != kEndings.end();
}

/// The position after the brace that closes the one at `open`; npos = there is none.
std::size_t after_brace(const std::string& text, std::size_t open) {
  int depth = 0;
  for (std::size_t i = open; i < text.size(); ++i) {
    depth += text[i] == '{' ? 1 : text[i] == '}' ? -1 : 0;
    if (depth == 0) return i + 1;
  }
  return std::string::npos;
}

/// Parts between commas outside of braces.
std::vector<std::string> outside_of_braces(const std::string& text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char letter : text) {
    depth += letter == '{' ? 1 : letter == '}' ? -1 : 0;
    if (letter == ',' && depth == 0) {
      parts.emplace_back();
    } else {
      parts.back() += letter;
    }
  }
  return parts;
}

/// "a{b,c}" becomes "ab" and "ac".
std::vector<std::string> without_braces(const std::string& text) {
  const std::size_t open = text.find('{');
  const std::size_t end = open == std::string::npos ? open : after_brace(text, open);
  if (end == std::string::npos) return {text};
  std::vector<std::string> all;
  for (const std::string& part : outside_of_braces(text.substr(open + 1, end - open - 2))) {
    for (const std::string& rest : without_braces(part + text.substr(end))) all.push_back(text.substr(0, open) + rest);
  }
  return all;
}

bool is_pattern(const std::string& text) { return text.find_first_of("*?[") != std::string::npos; }

/// Collects the files below `folder` that match the parts of a pattern from `next` on.
void match_parts(const fs::path& folder, const std::vector<std::string>& parts, std::size_t next,
                 std::vector<std::string>& found) {
  std::error_code unreadable;  // counts as empty
  if (next == parts.size()) {
    if (fs::is_regular_file(folder, unreadable)) found.push_back(folder.string());
    return;
  }
  const std::string& part = parts[next];
  if (!is_pattern(part)) return match_parts(folder / part, parts, next + 1, found);
  if (part == "**") match_parts(folder, parts, next + 1, found);
  for (const fs::directory_entry& entry : fs::directory_iterator(folder.empty() ? "." : folder, unreadable)) {
    const std::string name = entry.path().filename().string();
    const fs::path path = folder / name;
    if (part == "**") {
      if (is_field_folder(path)) match_parts(path, parts, next, found);
    } else if (fnmatch(part.c_str(), name.c_str(), FNM_PERIOD) == 0) {
      match_parts(path, parts, next + 1, found);
    }
  }
}

std::vector<std::string> files_of_pattern(const std::string& text) {
  std::vector<std::string> parts;
  for (const std::string& part : split(text, '/')) {
    if (!part.empty()) parts.push_back(part);
  }
  std::vector<std::string> found;
  match_parts(text.starts_with('/') ? "/" : "", parts, 0, found);
  return found;
}

std::vector<std::string> files_in_folder(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code unreadable;  // counts as empty
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, unreadable)) {
    if (is_field_file(entry.path())) found.push_back(entry.path().string());
  }
  return found;
}

}  // namespace

std::vector<std::string> field_files(const std::string& text, const std::string& cited) {
  std::vector<std::string> files;
  for (const std::string& part : outside_of_braces(text)) {
    const std::string word = trimmed(part);
    std::error_code unreadable;  // counts as missing
    std::vector<std::string> found;
    if (fs::is_regular_file(word, unreadable)) {
      found = {word};
    } else if (is_field_folder(word)) {
      found = files_in_folder(word);
      if (found.empty()) throw DataError(word, "contains no files of HDF5, netCDF-4, npy or npz; check " + cited);
    } else {
      for (const std::string& pattern : without_braces(word)) {
        for (std::string& path : files_of_pattern(pattern)) found.push_back(std::move(path));
      }
      if (found.empty()) throw DataError(word, "the file or folder does not exist; check " + cited);
    }
    std::ranges::sort(found);
    const auto repeated = std::ranges::unique(found);
    found.erase(repeated.begin(), repeated.end());
    files.insert(files.end(), found.begin(), found.end());
  }
  return files;
}

FieldPaths field_splits(const std::string& path) {
  for (const std::string& folder : {path, path + "/data"}) {
    if (!is_field_folder(folder + "/train")) continue;
    FieldPaths paths{.train = folder + "/train", .val = "", .test = ""};
    if (is_field_folder(folder + "/test")) paths.test = folder + "/test";
    for (const char* name : {"valid", "val", "validation"}) {
      if (paths.val.empty() && is_field_folder(folder + "/" + name)) paths.val = folder + "/" + name;
    }
    return paths;
  }
  return {.train = path, .val = "", .test = ""};
}

std::vector<std::string> target_files(const std::vector<std::string>& inputs, const std::string& text,
                                      const std::string& cited) {
  std::vector<std::string> targets;
  if (text.find('%') == std::string::npos) {
    targets = field_files(text, cited);
  } else {
    for (const std::string& input : inputs) {
      std::string path = text;
      path.replace(path.find('%'), 1, fs::path(input).stem().string());
      const bool is_relative = path.find('/') == std::string::npos;
      if (is_relative) path = (fs::path(input).parent_path() / path).string();
      std::error_code unreadable;  // counts as missing
      if (!fs::is_regular_file(path, unreadable)) {
        throw DataError(path, "the file does not exist; " + cited + " states it for the inputs " + input);
      }
      targets.push_back(path);
    }
  }
  if (targets.size() != inputs.size()) {
    throw DataError(targets.front(), "is one of " + std::to_string(targets.size()) +
                                         " files of targets, but there are " + std::to_string(inputs.size()) +
                                         " files of inputs; both must have the same number, in the same order");
  }
  return targets;
}

std::vector<std::string> take_targets(std::vector<std::string>& files) {
  static const std::string kInput = "input";
  std::vector<std::string> inputs;
  std::vector<std::string> targets;
  for (const std::string& file : files) {
    const std::filesystem::path path(file);
    std::string name = path.filename().string();
    const std::size_t begin = name.rfind(kInput);
    if (begin == std::string::npos) continue;
    name.replace(begin, kInput.size(), "target");
    std::string target = (path.parent_path() / name).string();
    if (std::ranges::find(files, target) == files.end()) continue;
    inputs.push_back(file);
    targets.push_back(std::move(target));
  }
  if (inputs.empty() || 2 * inputs.size() != files.size()) return {};
  files = std::move(inputs);
  return targets;
}

}  // namespace lockstep::data
