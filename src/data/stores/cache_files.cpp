// SPDX-License-Identifier: BSD-3-Clause
#include "data/stores/cache_files.hpp"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <system_error>
#include <unistd.h>

#include "data/source/hash.hpp"

namespace lockstep::data {

namespace {

constexpr std::int64_t kSettled_ns = 2000000000;

/// A folder below the one that an environment variable names; empty = it names none.
std::string below_variable(const char* variable, const std::string& folder) {
  const char* base = std::getenv(variable);
  return base != nullptr && *base == '/' ? base + folder : "";
}

}  // namespace

std::string cache_folder(const std::string& value) {
  if (value == "off") return "";
  if (value != "auto") return value;
  const std::string chosen = below_variable("XDG_CACHE_HOME", "/lockstep");
  return chosen.empty() ? below_variable("HOME", "/.cache/lockstep") : chosen;
}

std::string cache_path(const std::string& cache, std::string_view key, const std::string& ending) {
  return cache + "/" + hex(hash_of_text(key)) + ending;
}

bool is_settled(std::int64_t changed_ns) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return changed_ns < std::chrono::duration_cast<std::chrono::nanoseconds>(now).count() - kSettled_ns;
}

bool write_whole(const std::string& path, std::initializer_list<std::string_view> parts) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  const std::string unfinished = path + "." + std::to_string(::getpid());
  std::ofstream file(unfinished, std::ios::binary);
  for (const std::string_view part : parts) file.write(part.data(), static_cast<std::streamsize>(part.size()));
  file.close();
  if (file) std::filesystem::rename(unfinished, path, error);
  if (file && !error) return true;
  std::filesystem::remove(unfinished, error);
  return false;
}

std::uint64_t hash_of_text(std::string_view text) {
  return hash_of(std::span(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()));
}

std::string hex(std::uint64_t value) {
  std::string text(16, '0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = "0123456789abcdef"[value >> (60 - 4 * i) & 15];
  return text;
}

}  // namespace lockstep::data
