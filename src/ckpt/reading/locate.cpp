// SPDX-License-Identifier: BSD-3-Clause
#include "ckpt/reading/locate.hpp"

#include <lockstep/core/keys.hpp>

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>

#include "checkpoints/store/store.hpp"
#include "ckpt/reading/selection.hpp"
#include "ckpt/reading/text.hpp"

namespace lockstep::ckpt {

namespace fs = std::filesystem;

namespace {

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

[[noreturn]] void throw_nothing_there(const fs::path& path) {
  fs::path parent = fs::absolute(path).lexically_normal();
  if (!parent.has_filename()) parent = parent.parent_path();
  std::string missing;
  while (!is_there(parent) && parent != parent.parent_path()) {
    missing = parent.filename().string();
    parent = parent.parent_path();
  }
  const std::string near = nearest_name(missing, names_in(parent.string()));
  throw Failure(Exit::not_found, escaped(path.string()) + ": the file or folder does not exist; " +
                                     escaped(parent.string()) + " exists" +
                                     (near.empty() ? "" : ", did you mean '" + escaped(near) + "' in it?"));
}

/// "3 temporary and 1 bad ones were ignored", or "".
std::string ignored_in(const std::string& folder) {
  int temporary = 0;
  int bad = 0;
  for (const std::string& name : names_in(folder)) {
    temporary += name.starts_with(".tmp-") || name.starts_with(".trash-");
    bad += name.starts_with(".bad-");
  }
  if (temporary + bad == 0) return "";
  return "; " + std::to_string(temporary) + " unfinished and " + std::to_string(bad) + " bad ones were ignored";
}

/// `path` or `path`/ckpt, where that holds checkpoints; "" where neither does.
std::string folder_with_checkpoints(const std::string& path) {
  for (const std::string& folder : {path, path + "/ckpt"}) {
    if (is_folder(folder) && !checkpoints::list(folder).empty()) return folder;
  }
  return "";
}

bool is_checkpoint(const std::string& folder) {
  return is_there(folder + "/state.h5") || is_there(folder + "/MANIFEST.json");
}

/// The one index of a model in several safetensors files, or "".
std::string safetensors_index_in(const std::string& folder) {
  std::string index;
  for (const std::string& name : names_in(folder)) {
    if (!name.ends_with(".safetensors.index.json")) continue;
    if (!index.empty()) return "";
    index = folder + "/" + name;
  }
  return index;
}

std::string checkpoint_in(const std::string& folder) {
  if (is_checkpoint(folder)) return folder;
  const std::string holder = folder_with_checkpoints(folder);
  if (!holder.empty()) return *checkpoints::latest(holder);
  if (std::string index = safetensors_index_in(folder); !index.empty()) return index;
  throw Failure(Exit::not_found, escaped(folder) +
                                     ": it does not contain a checkpoint (no state.h5, and no folder named " +
                                     "like step-000000000000)" + ignored_in(folder));
}

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  return names;
}

Located locate(const std::string& path) {
  if (path.empty()) throw usage_error("the path is empty");
  std::string outside = without_slashes(path);
  std::string inside;
  while (!is_there(outside)) {
    const std::size_t slash = outside.rfind('/');
    if (slash == std::string::npos || slash == 0) throw_nothing_there(path);
    inside = outside.substr(slash) + inside;
    outside = without_slashes(outside.substr(0, slash));
  }
  if (!is_folder(outside)) return {outside, inside};
  // A name that is not there is a mistake in the path, unless it lies in a checkpoint.
  if (!inside.empty() && !is_checkpoint(outside)) throw_nothing_there(path);
  return {checkpoint_in(outside), inside};
}

std::string one_checkpoint(const std::string& path) {
  const std::string clean = without_slashes(path);
  if (!is_there(clean)) throw_nothing_there(path);
  if (is_folder(clean) ? is_checkpoint(clean) : !path.empty()) return clean;
  return "";
}

std::string checkpoint_folder(const std::string& path) {
  const std::string clean = without_slashes(path);
  if (!is_there(clean)) throw_nothing_there(path);
  const std::string holder = folder_with_checkpoints(clean);
  if (!holder.empty()) return holder;
  if (is_folder(clean + "/ckpt")) return clean + "/ckpt";
  if (!is_folder(clean) || is_checkpoint(clean)) {
    throw Failure(Exit::not_found, escaped(path) + ": it is not a folder of checkpoints");
  }
  return clean;
}

std::vector<Saved> saved_in(const std::string& directory) {
  std::vector<Saved> all;
  for (const std::int64_t step : checkpoints::list(directory)) {
    const std::string path = checkpoints::checkpoint_of(directory, step);
    all.push_back({step, fs::path(path).filename().string(), path});
  }
  return all;
}

std::uint64_t bytes_of(const std::string& path) {
  std::error_code error;
  if (!is_folder(path)) return fs::file_size(path, error);
  std::uint64_t bytes = 0;
  for (fs::recursive_directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    if (entry->is_regular_file(ignored)) bytes += entry->file_size(ignored);
  }
  return bytes;
}

InspectedFile open_source(const std::string& path) {
  const Located located = locate(path);
  if (!located.inside.empty()) {
    throw usage_error(escaped(path) + ": this command takes a file, not an array in it; --filter selects arrays");
  }
  return InspectedFile::open(located.file);
}

ArrayArgument open_array(const std::vector<std::string>& words) {
  const NameAndSlice last = split_slice(words.back());
  if (words.size() == 2) {
    InspectedFile source = open_source(words[0]);
    const FileArray* const info = &source.find(last.name);
    return {std::move(source), info, last.slice};
  }
  const Located located = locate(last.name);
  if (located.inside.empty())
    throw usage_error("the array is missing; give FILE NAME or FILE/NAME. `ckpt ls` lists the arrays");
  InspectedFile source = InspectedFile::open(located.file);
  const FileArray* const info = &source.find(located.inside);
  return {std::move(source), info, last.slice};
}

std::vector<const FileArray*> select(const InspectedFile& source, const Request& request) {
  const Filter filter(request.texts("filter"));
  std::vector<const FileArray*> chosen;
  for (const FileArray& info : source.arrays()) {
    if (filter.matches(info.path) || filter.matches(info.label)) chosen.push_back(&info);
  }
  const std::string key = request.text("sort", "order");
  if (key == "name") {
    std::ranges::stable_sort(chosen, [](auto* a, auto* b) { return a->path < b->path; });
  } else if (key == "size") {
    std::ranges::stable_sort(chosen, [](auto* a, auto* b) { return a->nbytes > b->nbytes; });
  } else if (key == "norm") {
    std::map<const FileArray*, double> norms;
    for (const FileArray* info : chosen) norms[info] = source.statistics(*info).rms;
    std::ranges::stable_sort(chosen, [&](auto* a, auto* b) { return norms[a] > norms[b]; });
  } else if (key != "order") {
    throw usage_error("--sort " + escaped(key) + ": choose one of: size, name, norm, order");
  }
  return chosen;
}

std::size_t limit_of(const Request& request, std::size_t otherwise) {
  return request.has("limit") ? static_cast<std::size_t>(request.integer("limit", 0)) : otherwise;
}

}  // namespace lockstep::ckpt
