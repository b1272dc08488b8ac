// SPDX-License-Identifier: BSD-3-Clause
#include "data/stores/folder_listing.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <dirent.h>
#include <exception>
#include <fcntl.h>
#include <filesystem>
#include <optional>
#include <sys/stat.h>
#include <system_error>
#include <thread>
#include <utility>

#include "core/text/duration.hpp"
#include "core/text/text.hpp"
#include "data/codecs/codecs.hpp"
#include "data/stores/cache_files.hpp"
#include "log/progress.hpp"

namespace lockstep::data {

namespace {

constexpr std::size_t kThreads = 8;
constexpr std::size_t kNamedFiles = 3;
constexpr std::array<const char*, 7> kImageEndings = {"jpg", "jpeg", "png", "ppm", "bmp", "pgm", "webp"};
constexpr std::array<const char*, 2> kRefusedEndings = {"tif", "tiff"};

using DeviceAndNode = std::pair<dev_t, ino_t>;

std::int64_t modified_ns(const struct stat& status) {
  return std::int64_t{status.st_mtim.tv_sec} * 1000000000 + status.st_mtim.tv_nsec;
}

/// The part after the last dot, in lower case.
std::string ending_of(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string::npos) return "";
  std::string ending = name.substr(dot + 1);
  for (char& c : ending) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return ending;
}

bool is_one_of(const std::string& ending, const auto& endings) {
  return std::any_of(endings.begin(), endings.end(), [&](const char* each) { return ending == each; });
}

/// Files and folders that programs leave behind: .DS_Store, ._image.png, .ipynb_checkpoints, __MACOSX.
bool is_hidden(const std::string& name) { return name.starts_with('.') || name == "__MACOSX"; }

class Directory {
 public:
  explicit Directory(const std::string& path) : handle_(::opendir(path.c_str())) {
    if (handle_ == nullptr) {
      throw DataError(path, "cannot be listed (" + std::generic_category().message(errno) + "); check data.path");
    }
    if (::fstat(::dirfd(handle_), &status_) != 0) status_ = {};
  }
  ~Directory() { ::closedir(handle_); }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;

  /// The next entry except "." and ".."; null at the end.
  const dirent* next() {
    while (const dirent* entry = ::readdir(handle_)) {
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") return entry;
    }
    return nullptr;
  }
  /// Whether an entry is a folder, or a link to one.
  bool is_folder(const dirent& entry) const {
    if (entry.d_type == DT_DIR) return true;
    if (entry.d_type != DT_UNKNOWN && entry.d_type != DT_LNK) return false;
    struct stat status {};
    return ::fstatat(::dirfd(handle_), entry.d_name, &status, 0) == 0 && S_ISDIR(status.st_mode);
  }
  std::int64_t modified_ns() const { return data::modified_ns(status_); }
  DeviceAndNode node() const { return {status_.st_dev, status_.st_ino}; }

 private:
  DIR* handle_;
  struct stat status_ {};
};

/// The images of one folder.
struct FolderImages {
  std::string path;  ///< below the root
  std::vector<std::string> names;
};

/// The parts of one class.
struct ClassListing {
  std::vector<FolderImages> images;
  std::vector<ListedFolder> folders;
  std::vector<std::string> passed_over;
};

class Walk {
 public:
  Walk(const std::string& root, std::atomic<std::int64_t>& count) : root_(root), count_(count) {}

  ClassListing list(const std::string& class_name) {
    visit(class_name);
    return std::move(listing_);
  }

 private:
  void visit(const std::string& path) {
    FolderImages images{.path = path, .names = {}};
    std::vector<std::string> subfolders;
    {
      Directory directory(path.empty() ? root_ : root_ + "/" + path);
      const DeviceAndNode node = directory.node();
      if (std::find(ancestors_.begin(), ancestors_.end(), node) != ancestors_.end()) return;  // a link to its parent
      ancestors_.push_back(node);
      listing_.folders.push_back({path, directory.modified_ns()});
      while (const dirent* entry = directory.next()) {
        const std::string name = entry->d_name;
        const bool is_line = name.find('\n') == std::string::npos;
        if (is_hidden(name)) {
          listing_.passed_over.push_back(name);
        } else if (directory.is_folder(*entry)) {
          (is_line ? subfolders : listing_.passed_over).push_back(name);
        } else {
          add_file(path, name, images);
        }
      }
    }
    count_ += static_cast<std::int64_t>(images.names.size());
    if (!images.names.empty()) listing_.images.push_back(std::move(images));
    for (const std::string& name : subfolders) visit(path.empty() ? name : path + "/" + name);
    ancestors_.pop_back();
  }

  void add_file(const std::string& path, const std::string& name, FolderImages& images) {
    const std::string ending = ending_of(name);
    const bool is_refused = is_one_of(ending, kRefusedEndings) || (ending == "webp" && !reads_webp());
    if (is_refused) {
      throw DataError(root_ + "/" + (path.empty() ? "" : path + "/") + name,
                      (ending == "webp" ? "WebP" : "TIFF") + std::string(" images are not supported by this build; "
                                                                         "convert them, for example with 'mogrify "
                                                                         "-format png FILE', or move them away"));
    }
    const bool is_image = is_one_of(ending, kImageEndings) && name.find('\n') == std::string::npos;
    (is_image ? images.names : listing_.passed_over).push_back(name);
  }

  const std::string& root_;
  std::atomic<std::int64_t>& count_;
  ClassListing listing_;
  std::vector<DeviceAndNode> ancestors_;
};

/// Lists all classes with several threads. The error of the first class that has one is thrown.
std::vector<ClassListing> list_classes(const std::string& root, const std::vector<std::string>& classes) {
  std::vector<ClassListing> listings(classes.size());
  std::vector<std::exception_ptr> errors(classes.size());
  std::atomic<std::size_t> next = 0;
  std::atomic<std::int64_t> count = 0;
  std::atomic<std::size_t> running = 0;
  const auto begin = std::chrono::steady_clock::now();
  log::ProgressLine progress;
  {
    std::vector<std::jthread> threads;
    const std::size_t thread_count = std::min(kThreads, classes.size());
    running = thread_count;
    for (std::size_t t = 0; t < thread_count; ++t) {
      threads.emplace_back([&] {
        for (std::size_t i = next++; i < classes.size(); i = next++) {
          try {
            listings[i] = Walk(root, count).list(classes[i]);
          } catch (...) {
            errors[i] = std::current_exception();
          }
        }
        --running;
      });
    }
    for (int wait_ms = 1; running > 0; wait_ms = std::min(2 * wait_ms, 200)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms));
      const double seconds = seconds_since(begin);
      if (seconds < 1) continue;
      const std::string advice = seconds < 30 ? "" : "; data.cache keeps the list for the next run";
      progress.show("listing " + root + ": " + std::to_string(count) + " files, " +
                    std::to_string(std::lround(seconds)) + " s" + advice);
    }
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return listings;
}

/// A path as the line of a list: a leading '#' would make it a comment.
std::string as_line(const std::string& path) { return path.starts_with('#') ? "./" + path : path; }

/// @param end  text after each path
void append_lines(ClassListing& listing, const std::string& end, std::string& lines) {
  std::sort(listing.images.begin(), listing.images.end(),
            [](const FolderImages& a, const FolderImages& b) { return a.path < b.path; });
  for (FolderImages& folder : listing.images) {
    std::sort(folder.names.begin(), folder.names.end());
    const std::string start = folder.path.empty() ? "" : folder.path + "/";
    for (const std::string& name : folder.names) lines += as_line(start + name) + end;
  }
}

/// Counts files that are no images, and keeps the first names.
void pass_over(FolderListing& all, const std::vector<std::string>& names) {
  all.passed_over_count += std::ssize(names);
  all.passed_over.insert(all.passed_over.end(), names.begin(), names.end());
  std::sort(all.passed_over.begin(), all.passed_over.end());
  if (all.passed_over.size() > kNamedFiles) all.passed_over.resize(kNamedFiles);
}

/// The time of the last change of a folder. @return  -1 = it cannot be examined
std::int64_t modified_ns_of(const std::string& folder) noexcept {
  struct stat status {};
  return ::stat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) ? modified_ns(status) : -1;
}

/// Lists images like torchvision's ImageFolder: the subfolders are the classes, and images can be at any depth below
/// them. Symbolic links are followed. Files count as images if their names end in .jpg, .jpeg, .png, .ppm, .bmp, .pgm
/// or .webp, in any case. Hidden files and folders (names with a leading dot, and __MACOSX) and folders with a line
/// break in their name are passed over. Files are not opened and, where the file system states their type, not
/// examined.
/// @throws DataError  a folder cannot be read, there are no class folders, or a file has a format that this build does
///                    not read (.tif, .tiff, and possibly .webp)
FolderListing list_folder(const std::string& root) {
  FolderListing all;
  bool has_images = false;
  std::vector<std::string> passed_over;
  {
    Directory directory(root);
    all.folders.push_back({".", directory.modified_ns()});
    while (const dirent* entry = directory.next()) {
      const std::string name = entry->d_name;
      if (is_hidden(name)) {
        passed_over.push_back(name);
      } else if (directory.is_folder(*entry)) {
        if (name.find('\n') != std::string::npos) {
          throw DataError(root, "a class folder has a name with a line break; rename it");
        }
        all.classes.push_back(name);
      } else {
        has_images = has_images || is_one_of(ending_of(name), kImageEndings);
        passed_over.push_back(name);
      }
    }
  }
  if (all.classes.empty()) {
    throw DataError(root, std::string("contains no class folders") + (has_images ? ", only files" : "") +
                              "; data.name = folder requires one subfolder of images per class, or data.unlabeled=true "
                              "for images without labels");
  }
  pass_over(all, passed_over);
  std::sort(all.classes.begin(), all.classes.end());
  std::vector<ClassListing> listings = list_classes(root, all.classes);
  for (std::size_t label = 0; label < listings.size(); ++label) {
    ClassListing& listing = listings[label];
    if (listing.images.empty()) all.empty_classes.push_back(all.classes[label]);
    append_lines(listing, " " + std::to_string(label) + "\n", all.lines);
    all.folders.insert(all.folders.end(), listing.folders.begin(), listing.folders.end());
    pass_over(all, listing.passed_over);
    listing = {};
  }
  return all;
}

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

}  // namespace

FolderListing list_images(const std::string& root) {
  ClassListing listing = std::move(list_classes(root, {""}).front());
  if (listing.images.empty()) {
    throw DataError(root, "contains no images (.jpg, .jpeg, .png, .ppm, .bmp, .pgm or .webp); check data.path");
  }
  FolderListing all;
  append_lines(listing, "\n", all.lines);
  all.folders = std::move(listing.folders);
  pass_over(all, listing.passed_over);
  return all;
}

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
  const bool are_settled = std::all_of(listing.folders.begin(), listing.folders.end(),
                                       [](const ListedFolder& folder) { return is_settled(folder.modified_ns); });
  const bool is_written = !path.empty() && are_settled && write_whole(path, {text});
  return {.text = is_written ? ListText(path) : ListText(std::move(text), root),
          .classes = listing.classes,
          .empty_classes = listing.empty_classes,
          .passed_over = passed_over_text(listing)};
}

}  // namespace lockstep::data
