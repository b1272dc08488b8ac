// SPDX-License-Identifier: BSD-3-Clause
#include "data/stores/list_cache.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>
#include <unistd.h>

#include "core/text.hpp"
#include "data/hash.hpp"
#include "data/stores/folder_listing.hpp"

namespace lockstep::data {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSettled_ns = 2000000000;
constexpr std::string_view kMagic = "lockstep-list 1 ";
constexpr std::string_view kFolder = "folder ";
constexpr std::string_view kEmpty = "empty ";
constexpr std::string_view kPassedOver = "skipped ";

std::uint64_t digest_of(std::string_view text) {
  return hash_of(std::span(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()));
}

std::string hex(std::uint64_t value) {
  std::string text(16, '0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = "0123456789abcdef"[value >> (60 - 4 * i) & 15];
  return text;
}

std::string passed_over_text(const FolderListing& listing) {
  if (listing.passed_over_count == 0) return "";
  const bool has_more = static_cast<std::int64_t>(listing.passed_over.size()) < listing.passed_over_count;
  std::string text = std::to_string(listing.passed_over_count) + " files: " + joined(listing.passed_over);
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text + (has_more ? ", ..." : "");
}

std::string list_of(const std::string& root, const FolderListing& listing) {
  std::string rest;
  std::int64_t newest = 0;
  for (const ListedFolder& folder : listing.folders) {
    rest += "# " + std::string(kFolder) + std::to_string(folder.modified_ns) + " " + folder.path + "\n";
    newest = std::max(newest, folder.modified_ns);
  }
  for (const std::string& name : listing.empty_classes) rest += "# " + std::string(kEmpty) + name + "\n";
  const std::string remark = passed_over_text(listing);
  if (!remark.empty()) rest += "# " + std::string(kPassedOver) + remark + "\n";
  rest += listing.lines;
  return "# " + std::string(kMagic) + root + " " + std::to_string(listing.folders.size()) + " " +
         std::to_string(newest) + " " + hex(digest_of(rest)) + "\n" + rest;
}

/// The parts of a list's comments. @return  nullopt = they are not those of a list of this folder, or it has changed
std::optional<FolderList> valid_list(ListText text, const std::string& root) {
  const std::string_view all = text.text();
  const std::size_t first_end = all.find('\n');
  if (root_in(all) != root || first_end == std::string_view::npos) return std::nullopt;
  const std::string_view first = all.substr(0, first_end);
  if (!first.ends_with(" " + hex(digest_of(all.substr(first_end + 1))))) return std::nullopt;
  FolderList list{.text = std::move(text), .classes = {}, .empty_classes = {}, .passed_over = {}};
  std::size_t start = first_end + 1;
  while (all.substr(start).starts_with("# ")) {
    const std::size_t end = all.find('\n', start);
    const std::string_view line = all.substr(start + 2, end - start - 2);
    start = end == std::string_view::npos ? all.size() : end + 1;
    if (line.starts_with(kEmpty)) list.empty_classes.emplace_back(line.substr(kEmpty.size()));
    if (line.starts_with(kPassedOver)) list.passed_over = line.substr(kPassedOver.size());
    if (!line.starts_with(kFolder)) continue;
    const std::string_view words = line.substr(kFolder.size());
    const std::size_t blank = words.find(' ');
    if (blank == std::string_view::npos) return std::nullopt;
    std::int64_t time = 0;
    std::from_chars(words.data(), words.data() + blank, time);
    const std::string path(words.substr(blank + 1));
    if (modified_ns_of(root + "/" + path) != time) return std::nullopt;
    if (path != "." && path.find('/') == std::string::npos) list.classes.push_back(path);
  }
  return list;
}

bool is_settled(const FolderListing& listing) {
  const std::int64_t now =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  return std::all_of(listing.folders.begin(), listing.folders.end(),
                     [now](const ListedFolder& folder) { return folder.modified_ns < now - kSettled_ns; });
}

/// Writes a file completely or not at all. @return  whether it was written
bool write_whole(const std::string& path, const std::string& text) {
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  const std::string unfinished = path + "." + std::to_string(::getpid());
  std::ofstream file(unfinished, std::ios::binary);
  file << text;
  file.close();
  if (file) fs::rename(unfinished, path, error);
  if (file && !error) return true;
  fs::remove(unfinished, error);
  return false;
}

}  // namespace

std::string cache_folder(const std::string& value) {
  if (value == "off") return "";
  if (value != "auto") return value;
  const auto below = [](const char* variable, const std::string& folder) -> std::string {
    const char* base = std::getenv(variable);
    return base != nullptr && *base == '/' ? base + folder : "";
  };
  const std::string chosen = below("XDG_CACHE_HOME", "/lockstep");
  return chosen.empty() ? below("HOME", "/.cache/lockstep") : chosen;
}

std::string root_in(std::string_view list) {
  const std::string_view first = list.substr(0, std::min(list.find('\n'), list.size()));
  const std::string magic = "# " + std::string(kMagic);
  if (!first.starts_with(magic)) return "";
  std::string_view root = first.substr(magic.size());
  for (int word = 0; word < 3; ++word) {
    const std::size_t blank = root.rfind(' ');
    if (blank == std::string_view::npos) return "";
    root = root.substr(0, blank);
  }
  return std::string(root);
}

FolderList cached_list(const std::string& root, const std::string& cache) {
  std::error_code error;
  const fs::path canonical = fs::canonical(root, error);
  if (error) throw DataError(root, "cannot be listed (" + error.message() + "); check data.path");
  if (canonical.native().find('\n') != std::string::npos) {
    throw DataError(root, "has a line break in its path; rename the folder");
  }
  const std::string path = cache.empty() ? "" : cache + "/" + hex(digest_of(canonical.native())) + ".list";
  if (!path.empty() && fs::is_regular_file(path, error)) {
    try {
      if (auto list = valid_list(ListText(path), canonical)) return std::move(*list);
    } catch (const DataError&) {  // a cache that cannot be read is made again
    }
  }
  const FolderListing listing = list_folder(canonical);
  std::string text = list_of(canonical, listing);
  const bool is_written = !path.empty() && is_settled(listing) && write_whole(path, text);
  return {.text = is_written ? ListText(path) : ListText(std::move(text), root),
          .classes = listing.classes,
          .empty_classes = listing.empty_classes,
          .passed_over = passed_over_text(listing)};
}

}  // namespace lockstep::data
