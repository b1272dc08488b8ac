// SPDX-License-Identifier: BSD-3-Clause
#include "ckpt/reading/source.hpp"

#include <lockstep/core/keys.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "checkpoints/foreign/foreign.hpp"
#include "checkpoints/store/checkpoint_index.hpp"
#include "checkpoints/store/store.hpp"
#include "ckpt/reading/commands.hpp"
#include "ckpt/reading/text.hpp"
#include "core/text/text.hpp"

namespace lockstep::ckpt {

namespace {

/// Up to here a file is read whole when its arrays are requested: one after the other costs a look at its index each.
constexpr std::uint64_t kWholeBytes = std::uint64_t{1} << 30;
constexpr std::size_t kManyArrays = 2000;
constexpr std::size_t kShownNotes = 20;

void add(Entries& entries, const std::string& key, const std::string& value) {
  const auto [entry, is_new] = entries.emplace(key, value);
  if (!is_new) entry->second += "\n" + value;
}

std::optional<Entries> entries_of_ini(const std::string& text) {
  Entries entries;
  std::string section;
  for (const std::string& written : lines_in(text)) {
    const std::string line = trimmed(written.substr(0, written.find('#')));
    if (line.empty()) continue;
    const auto equals = line.find('=');
    if (line.front() == '[' && line.back() == ']') {
      section = line.substr(1, line.size() - 2) + ".";
    } else if (equals == std::string::npos) {
      return std::nullopt;
    } else {
      add(entries, section + trimmed(line.substr(0, equals)), trimmed(line.substr(equals + 1)));
    }
  }
  return entries;
}

std::optional<Entries> entries_of_json(const std::string& text) {
  const auto root = nlohmann::json::parse(text, nullptr, false);
  if (!root.is_object()) return std::nullopt;
  Entries entries;
  const auto flat = root.flatten();
  for (const auto& [pointer, value] : flat.items()) {
    if (pointer.empty()) continue;        // an empty object
    std::string key = pointer.substr(1);  // "/hosts/0"
    std::replace(key.begin(), key.end(), '/', '.');
    add(entries, key, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return entries;
}

}  // namespace

std::string label_of(const std::string& path) {
  for (const std::string_view group : {"/model/params/", "/model/buffers/"}) {
    if (path.starts_with(group)) return path.substr(group.size());
  }
  return path.find('/', 1) == std::string::npos ? path.substr(1) : path;
}

InspectedFile InspectedFile::open(const std::string& path) {
  InspectedFile source;
  source.path_ = path;
  std::error_code ignored;
  const auto kind =
      std::filesystem::is_directory(path, ignored) ? checkpoints::FileKind::lockstep : checkpoints::kind_of(path);
  // A file of an unknown kind may be one of ours with a damaged beginning: its reader says.
  source.is_own_ = kind == checkpoints::FileKind::lockstep || kind == checkpoints::FileKind::unknown;
  source.kind_ = source.is_own_ ? "a Lockstep checkpoint" : checkpoints::describe(path);
  source.is_own_ ? source.list_own() : source.list_foreign();
  return source;
}

void InspectedFile::list_own() {
  checkpoints::CheckpointIndex index = checkpoints::read_checkpoint_index(path_);
  file_bytes_ = index.file_bytes;
  kind_ += ", written by " + escaped(index.writer);
  for (checkpoints::IndexedArray& array : index.arrays) {
    std::string label = label_of(array.path);
    arrays_.push_back({std::move(array), std::move(label)});
  }
}

void InspectedFile::list_foreign() {
  for (const std::string& file : checkpoints::files_of(path_)) {
    std::error_code ignored;
    file_bytes_ += std::filesystem::file_size(file, ignored);
  }
  std::vector<std::string> left_out;
  groups_ = whole_ = std::make_shared<checkpoints::Archive>(checkpoints::read_foreign(path_, {.left_out = &left_out}));
  for (std::size_t i = 0; i < left_out.size() && i < kShownNotes; ++i) {
    fmt::print(stderr, "note: {}: left out {}\n", escaped(path_), escaped(left_out[i]));
  }
  if (left_out.size() > kShownNotes) {
    fmt::print(stderr, "note: {}: left out {} more\n", escaped(path_), left_out.size() - kShownNotes);
  }
  for (const std::string& path : whole_->array_paths()) {
    const checkpoints::Array& array = whole_->array(path);
    arrays_.push_back(
        {{.path = path, .dtype = array.dtype, .shape = array.shape, .nbytes = array.bytes.size()}, label_of(path)});
  }
}

const checkpoints::Archive& InspectedFile::groups_archive() const {
  if (!groups_) groups_ = std::make_shared<checkpoints::Archive>(checkpoints::read_groups(path_));
  return *groups_;
}

std::vector<std::string> InspectedFile::groups() const {
  std::vector<std::string> paths = groups_archive().group_paths();
  paths.insert(paths.begin(), "/");
  return paths;
}

const std::map<std::string, checkpoints::Attribute>& InspectedFile::attributes(const std::string& path) const {
  return groups_archive().attributes_of(path);
}

checkpoints::Array InspectedFile::read(const FileArray& info) const {
  const bool fits = file_bytes_ <= kWholeBytes || arrays_.size() > kManyArrays;
  if (!whole_ && fits) whole_ = std::make_shared<checkpoints::Archive>(checkpoints::read(path_));
  return whole_ ? whole_->array(info.path) : checkpoints::read_array(path_, info.path);
}

std::string InspectedFile::document(const std::string& path) const {
  const auto found = std::ranges::find(arrays_, path, &FileArray::path);
  return found == arrays_.end() ? "" : checkpoints::text_of(read(*found));
}

std::string InspectedFile::digest(const FileArray& info) const {
  const checkpoints::Array array = read(info);  // which checks what the file says
  return is_own_ ? info.digest : checkpoints::array_digest(array.bytes);
}

Statistics InspectedFile::statistics(const FileArray& info) const {
  return is_own_ ? info.statistics : statistics_of(read(info));
}

const FileArray& InspectedFile::find(const std::string& name) const {
  std::vector<const FileArray*> ends;
  for (const FileArray& info : arrays_) {
    const bool is_it = info.path == name || info.label == name || info.path == "/" + name || escaped(info.path) == name;
    if (is_it) return info;
    if (info.path.ends_with("/" + name)) ends.push_back(&info);
  }
  if (ends.size() == 1) return *ends[0];
  if (ends.size() > 1) {
    throw Failure(Exit::not_found, escaped(path_) + ": several arrays end in '" + escaped(name) + "', such as " +
                                       escaped(ends[0]->path) + " and " + escaped(ends[1]->path));
  }
  std::vector<std::string> labels;
  for (const FileArray& info : arrays_) labels.push_back(info.label);
  const std::string near = nearest_name(name, labels);
  throw Failure(Exit::not_found,
                escaped(path_) + ": it does not contain the array '" + escaped(name) + "'" +
                    (near.empty() ? "; `ckpt ls` lists them" : "; did you mean '" + escaped(near) + "'?"));
}

bool InspectedFile::has_group(const std::string& path) const {
  const std::vector<std::string> paths = groups();
  return std::ranges::find(paths, path) != paths.end();
}

std::optional<Entries> entries_of(const std::string& path, const std::string& text) {
  if (path == "/meta/config_ini") return entries_of_ini(text);
  if (path == "/meta/env_json") return entries_of_json(text);
  return std::nullopt;
}

}  // namespace lockstep::ckpt
