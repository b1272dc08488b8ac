// SPDX-License-Identifier: BSD-3-Clause
#include "support/folders.hpp"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <optional>
#include <stdexcept>
#include <unistd.h>
#include <vector>

namespace lockstep::testing {

namespace fs = std::filesystem;

namespace {

std::optional<fs::path> from_environment(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return fs::path(value);
}

/// The folder that `own` names, else the folder `part` in LOCKSTEP_SHARED, else `fallback`.
fs::path folder_of(const char* own, const char* part, const char* fallback) {
  if (const auto given = from_environment(own)) return source_root() / *given;  // an absolute path replaces the root
  if (const auto shared = from_environment("LOCKSTEP_SHARED")) return source_root() / *shared / part;
  return source_root() / fallback;
}

/// Reads a file, unpacked if it is packed.
std::string read_unpacked(const fs::path& path) {
  const gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) throw std::runtime_error("cannot read " + path.string());
  std::string bytes;
  std::array<char, 65536> buffer{};
  int count = 0;
  while ((count = gzread(file, buffer.data(), static_cast<unsigned>(buffer.size()))) > 0) {
    bytes.append(buffer.data(), static_cast<std::size_t>(count));
  }
  const bool is_complete = count == 0 && gzclose_r(file) == Z_OK;
  if (!is_complete) throw std::runtime_error(path.string() + " is damaged");
  return bytes;
}

bool is_packed(const fs::path& path) { return path.extension() == ".gz"; }

/// The facts that change when the file does.
std::string state_of(const fs::path& file) {
  return file.string() + " " + std::to_string(fs::file_size(file)) + " " +
         std::to_string(fs::last_write_time(file).time_since_epoch().count()) + "\n";
}

/// Copies a file into a folder, unpacked if it is packed.
void put_into(const fs::path& folder, const fs::path& file) {
  fs::create_directories(folder);
  if (!is_packed(file)) {
    fs::copy_file(file, folder / file.filename());
    return;
  }
  std::ofstream(folder / file.stem(), std::ios::binary) << read_unpacked(file);
}

/// The folder of the unpacked files that `state` describes. The first process that needs it calls `fill` with an empty
/// folder, which it then renames, so that all ranks and later runs use the same paths.
fs::path unpacked_once(const std::string& state, const std::function<void(const fs::path&)>& fill) {
  const fs::path top = from_environment("LOCKSTEP_BINARY_DIR").value_or(fs::temp_directory_path()) / "golden";
  const fs::path folder = top / std::to_string(std::hash<std::string>{}(state));
  if (fs::exists(folder)) return folder;
  const fs::path draft = folder.string() + "." + std::to_string(getpid());
  fs::create_directories(draft);
  fill(draft);
  std::error_code is_there_already;
  fs::rename(draft, folder, is_there_already);
  if (is_there_already) fs::remove_all(draft);
  return folder;
}

std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

fs::path unpacked_folder(const fs::path& folder) {
  const std::vector<fs::path> files = files_below(folder);
  if (std::none_of(files.begin(), files.end(), is_packed)) return folder;
  std::string state;
  for (const fs::path& file : files) state += state_of(file);
  return unpacked_once(state, [&](const fs::path& target) {
    for (const fs::path& file : files) put_into(target / fs::relative(file, folder).parent_path(), file);
  });
}

}  // namespace

fs::path source_root() { return from_environment("LOCKSTEP_SOURCE_DIR").value_or(LOCKSTEP_SOURCE_DIR); }

fs::path golden_folder() { return folder_of("LOCKSTEP_GOLDEN", "reference", "tests/golden"); }

bool is_golden_folder_complete() { return !from_environment("LOCKSTEP_GOLDEN") && from_environment("LOCKSTEP_SHARED"); }

fs::path golden(const std::string& name) {
  const fs::path path = golden_folder() / name;
  if (fs::is_directory(path)) return unpacked_folder(path);
  const fs::path packed = path.string() + ".gz";
  if (fs::exists(path) || !fs::exists(packed)) return path;
  return unpacked_once(state_of(packed), [&](const fs::path& target) { put_into(target, packed); }) / path.filename();
}

std::string read_golden(const std::string& name) {
  const fs::path path = golden_folder() / name;
  const fs::path packed = path.string() + ".gz";
  return read_unpacked(fs::exists(path) || !fs::exists(packed) ? path : packed);
}

fs::path sample_data(const std::string& name) { return folder_of("LOCKSTEP_DATA", "data", "tests/data") / name; }

}  // namespace lockstep::testing
