// SPDX-License-Identifier: BSD-3-Clause
#include "data/stores/list_cache.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <system_error>

#include "core/text/text.hpp"
#include "data/stores/cache_files.hpp"
#include "data/stores/folder_listing.hpp"
#include "data/stores/list_index.hpp"

namespace lockstep::data {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "lockstep-list 2 ";
constexpr std::string_view kOldMagic = "lockstep-list 1 ";  // former version, which includes hidden files
constexpr std::string_view kFolder = "folder ";
constexpr std::string_view kEmpty = "empty ";
constexpr std::string_view kPassedOver = "skipped ";

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
         std::to_string(newest) + " " + hex(hash_of_text(rest)) + "\n" + rest;
}

/// Remembers the digests in the index of a list, if there is one: then the whole text need not be read.
void take_digest(ListText& text, const std::string& cache) {
  const auto index = ListIndex::find(
      {.cache = cache, .list = text.name(), .target = ListTarget::classes, .stamp = text.stamp().value()});
  if (index) text.set_digest(index->facts().text);
}

/// The parts of a list's comments. @return  nullopt = they are not those of a list of this folder, or it has changed
std::optional<FolderList> valid_list(ListText text, const std::string& root) {
  const std::string_view all = text.text();
  const std::size_t first_end = all.find('\n');
  if (!all.starts_with("# " + std::string(kMagic)) || root_in(all) != root || first_end == std::string_view::npos)
    return std::nullopt;
  const std::string_view first = all.substr(0, first_end);
  if (!first.ends_with(" " + hex(text.digest().rest))) return std::nullopt;
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

bool are_settled(const std::vector<ListedFolder>& folders) {
  return std::all_of(folders.begin(), folders.end(),
                     [](const ListedFolder& folder) { return is_settled(folder.modified_ns); });
}

}  // namespace

std::string root_in(std::string_view list) {
  const std::string_view first = list.substr(0, std::min(list.find('\n'), list.size()));
  if (!first.starts_with("# " + std::string(kMagic)) && !first.starts_with("# " + std::string(kOldMagic))) return "";
  std::string_view root = first.substr(2 + kMagic.size());
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
  const std::string path = cache.empty() ? "" : cache_path(cache, canonical.native(), ".list");
  if (!path.empty() && fs::is_regular_file(path, error)) {
    try {
      ListText text(path);
      take_digest(text, cache);
      if (auto list = valid_list(std::move(text), canonical)) return std::move(*list);
    } catch (const DataError&) {  // a cache that cannot be read is made again
    }
  }
  const FolderListing listing = list_folder(canonical);
  std::string text = list_of(canonical, listing);
  const bool is_written = !path.empty() && are_settled(listing.folders) && write_whole(path, {text});
  return {.text = is_written ? ListText(path) : ListText(std::move(text), root),
          .classes = listing.classes,
          .empty_classes = listing.empty_classes,
          .passed_over = passed_over_text(listing)};
}

}  // namespace lockstep::data
