// SPDX-License-Identifier: BSD-3-Clause

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "checkpoints/foreign/safetensors.hpp"
#include "checkpoints/format/names.hpp"

namespace lockstep::checkpoints {

namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t kMaxIndexBytes = 100'000'000;
constexpr std::uint64_t kIndexHeadBytes = 4096;
constexpr int kMaxNesting = 8;

/// Names of tensors, encoded as parts of a path, with the file of each.
using WeightMap = std::map<std::string, std::string>;

std::string text_of(const ByteSource& source, std::uint64_t bytes) {
  std::string text(bytes, '\0');
  source.read_to(0, std::as_writable_bytes(std::span(text)));
  return text;
}

nlohmann::json parse(const ByteSource& source) {
  if (source.size() > kMaxIndexBytes) source.refuse("its index has more than 100000000 bytes");
  std::set<std::string> names;
  const auto check = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    if (depth > kMaxNesting) source.refuse("its index is nested too deeply");
    if (event == nlohmann::json::parse_event_t::key && depth == 2 && !names.insert(value.get<std::string>()).second) {
      source.refuse(quoted("tensor", value.get<std::string>()), "the index lists it twice");
    }
    return true;
  };
  try {
    const std::string text = text_of(source, source.size());
    if (text.find('\0') != std::string::npos) source.refuse("its index has a NUL");  // the parser's end of input
    return nlohmann::json::parse(text, check);
  } catch (const nlohmann::json::exception&) {
    source.refuse("its index is not JSON in UTF-8");
  }
}

WeightMap weight_map_of(const ByteSource& source) {
  const nlohmann::json json = parse(source);
  const auto found = json.is_object() ? json.find("weight_map") : json.end();
  if (found == json.end() || !found->is_object()) source.refuse("its index has no map 'weight_map'");
  WeightMap map;
  for (const auto& [name, file] : found->items()) {
    if (!file.is_string()) source.refuse(quoted("tensor", name), "the index states no file for it");
    const auto& text = file.get_ref<const std::string&>();
    const bool is_beside = is_part(text) && fs::path(text).filename() == text;
    if (!is_beside) {
      source.refuse(quoted("tensor", name),
                    quoted("its file", text) + " is not in the folder of the index; this is not allowed",
                    CheckpointFault::refused);
    }
    map.emplace(part_of(source, name), text);
  }
  return map;
}

std::vector<std::string> files_of(const ByteSource& source, const WeightMap& map) {
  std::set<std::string> names;
  for (const auto& [name, file] : map) names.insert(file);
  std::vector<std::string> paths;
  std::string missing;
  for (const std::string& name : names) {
    paths.push_back((fs::path(source.path()).parent_path() / name).string());
    if (!exists(paths.back())) missing += (missing.empty() ? "" : ", ") + in_quotes(name);
  }
  if (!missing.empty()) source.refuse("these files are missing: " + missing);
  return paths;
}

}  // namespace

bool is_safetensors_index(const ByteSource& source) {
  const std::string head = text_of(source, std::min(source.size(), kIndexHeadBytes));
  const auto first = head.find_first_not_of(" \t\r\n");
  return first != std::string::npos && head[first] == '{' && head.find("\"weight_map\"") != std::string::npos;
}

std::vector<std::string> files_of_index(const ByteSource& source) { return files_of(source, weight_map_of(source)); }

Archive read_safetensors_index(const ByteSource& source, bool is_mapped) {
  const WeightMap map = weight_map_of(source);
  Archive archive;
  archive.set_origin(source.path());
  for (const std::string& path : files_of(source, map)) {
    const DiskSource file(path, is_mapped);
    const Archive part = read_safetensors(file);
    for (const std::string& array : part.array_paths()) {
      if (array.find('/', 1) != std::string::npos) continue;  // a long text among the metadata
      const auto listed = map.find(array.substr(1));
      if (listed == map.end()) file.refuse(array, "the index " + source.path() + " does not list it");
      if (listed->second != fs::path(path).filename()) {
        file.refuse(array, "the index states that it is in " + listed->second + ": the files do not belong together");
      }
    }
    archive.append(part);
  }
  for (const auto& [name, file] : map) {
    if (!archive.has("/" + name)) source.refuse("/" + name, "it is not in " + file + ", although the index states so");
  }
  return archive;
}

}  // namespace lockstep::checkpoints
