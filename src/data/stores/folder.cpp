// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "core/text/text.hpp"
#include "data/source/settings.hpp"
#include "data/source/sources.hpp"
#include "data/stores/cache_files.hpp"
#include "data/stores/file_store.hpp"
#include "data/stores/folder_listing.hpp"

namespace lockstep::data {

namespace {

namespace fs = std::filesystem;

bool is_folder(const std::string& path) {
  std::error_code unreadable;  // counts as missing
  return fs::is_directory(path, unreadable);
}

struct FolderRequest {
  std::string cache;
  std::int64_t max_file_bytes = 0;
  bool allows_empty = false;
};

struct OpenedFolder {
  std::shared_ptr<const ImageStore> store;
  std::vector<std::string> classes;  ///< names of the folders in the order of their numbers
  std::vector<std::string> notes;
};

/// Names of folders can contain any bytes.
std::vector<std::string> utf8_names(std::vector<std::string> names) {
  for (std::string& name : names) name = utf8_name(name);
  return names;
}

std::shared_ptr<const ListLines> lines_of(FolderList& list, const std::string& root, const std::string& cache) {
  if (list.empty_classes.size() == list.classes.size()) {
    throw DataError(root, "contains no images; data.name = folder requires one subfolder of images per class");
  }
  return std::make_shared<const ListLines>(
      std::move(list.text),
      ListLines::ListOptions{
          .classes = static_cast<std::int64_t>(list.classes.size()), .rule = "class folders", .cache = cache});
}

/// @param classes  those of the training split; empty = this is the training split
OpenedFolder open_folder_split(const std::string& root, const std::vector<std::string>& classes,
                               const FolderRequest& request) {
  FolderList list = cached_list(root, request.cache);
  const bool is_train = classes.empty();
  if (is_train && !list.empty_classes.empty() && !request.allows_empty) {
    throw DataError(root + "/" + list.empty_classes.front(),
                    "the class '" + list.empty_classes.front() +
                        "' has no images; remove the folder, or set data.allow_empty = true to keep its number");
  }
  OpenedFolder opened;
  if (!list.passed_over.empty()) opened.notes.push_back(root + ": skipped " + list.passed_over);
  const std::vector<std::string>& all = is_train ? list.classes : classes;
  std::vector<std::int64_t> numbers;
  for (const std::string& name : list.classes) {
    const auto found = std::lower_bound(all.begin(), all.end(), name);
    const bool is_known = found != all.end() && *found == name;
    const bool is_empty =
        std::find(list.empty_classes.begin(), list.empty_classes.end(), name) != list.empty_classes.end();
    if (!is_known && !is_empty) {
      throw DataError(root + "/" + name,
                      "the class '" + name + "' does not occur in the training part; rename or remove the folder");
    }
    numbers.push_back(is_known ? found - all.begin() : -1);
  }
  std::vector<std::string> missing;
  for (const std::string& name : all) {
    if (!std::binary_search(list.classes.begin(), list.classes.end(), name)) missing.push_back(name);
  }
  if (!missing.empty()) opened.notes.push_back(root + ": has no images of the classes " + joined(missing));
  const FileStore::FileStoreOptions options{.root = root,
                                            .classes = static_cast<std::int64_t>(all.size()),
                                            .class_names = utf8_names(all),
                                            .numbers = std::move(numbers),
                                            .max_file_bytes = request.max_file_bytes};
  opened.classes = all;
  opened.store = std::make_shared<FileStore>(lines_of(list, root, request.cache), options);
  return opened;
}

/// The folders of the splits; empty = there is none.
struct SplitFolders {
  std::string train;
  std::string val;
  std::string test;
  std::vector<std::string> notes = {};
};

SplitFolders find_splits(const Section& data) {
  const std::string& path = required_path(data, "a folder with one subfolder of images per class");
  const std::string& val_path = data.text("val_path");
  if (!is_folder(path)) throw DataError(path, "is not a folder that can be read; check data.path");
  SplitFolders folders{.train = path, .val = val_path, .test = ""};
  if (!is_folder(path + "/train")) return folders;
  folders.train = path + "/train";
  if (is_folder(path + "/test")) folders.test = path + "/test";
  for (const char* name : {"val", "valid", "validation"}) {
    if (folders.val.empty() && is_folder(path + "/" + name)) folders.val = path + "/" + name;
  }
  if (folders.val.empty() && !folders.test.empty()) {
    folders.val = folders.test;
    folders.notes.push_back(path + ": has no folder val, so that test is used for validation");
  }
  return folders;
}

/// The images at any depth below data.path, which every split has.
ImageSplits open_unlabeled(const Section& data) {
  const std::string& path = required_path(data, "a folder of images");
  if (!is_folder(path)) throw DataError(path, "is not a folder that can be read; check data.path");
  FolderListing listing = list_images(path);
  auto lines = std::make_shared<const ListLines>(ListText(std::move(listing.lines), path),
                                                 ListLines::ListOptions{.target = ListTarget::none});
  const auto store = std::make_shared<FileStore>(
      std::move(lines), FileStore::FileStoreOptions{.root = path, .max_file_bytes = max_image_bytes(data)});
  ImageSplits splits{.train = store, .val = store, .test = store};
  if (listing.passed_over_count > 0) {
    std::string name = listing.passed_over.front();
    std::replace(name.begin(), name.end(), '\n', ' ');
    splits.notes.push_back(path + ": skipped " + std::to_string(listing.passed_over_count) +
                           " files that are no images or have a line break in their names, such as " + name);
  }
  return splits;
}

ImageSplits open_folder(const Section& data, const UsedSplits& used) {
  if (data.boolean("unlabeled")) return open_unlabeled(data);
  const FolderRequest request{.cache = cache_folder(data.text("cache")),
                              .max_file_bytes = max_image_bytes(data),
                              .allows_empty = data.boolean("allow_empty")};
  const SplitFolders folders = find_splits(data);
  OpenedFolder train = open_folder_split(folders.train, {}, request);
  ImageSplits splits{
      .train = train.store, .notes = folders.notes, .is_one_part = folders.val.empty() && folders.test.empty()};
  const auto add_notes = [&splits](const OpenedFolder& opened) {
    splits.notes.insert(splits.notes.end(), opened.notes.begin(), opened.notes.end());
  };
  add_notes(train);
  const std::vector<std::string>& classes = train.classes;
  const bool is_shared = folders.test == folders.val;
  if (!folders.val.empty() && (used.val || (is_shared && used.test))) {
    const OpenedFolder val = open_folder_split(folders.val, classes, request);
    add_notes(val);
    splits.val = val.store;
  }
  if (is_shared) {
    splits.test = splits.val;
  } else if (!folders.test.empty() && used.test) {
    try {
      const OpenedFolder test = open_folder_split(folders.test, classes, request);
      add_notes(test);
      splits.test = test.store;
    } catch (const DataError& error) {  // images without labels, as competitions publish them
      splits.notes.push_back(std::string("there is no test part: ") + error.what());
    }
  }
  return splits;
}

}  // namespace

KeySpec val_path_key() {
  return keys::text("data.val_path", "",
                    "folder, list, hdf5, npy, fields: folder, list or files of the validation part; empty = see "
                    "data.path");
}

KeySpec unlabeled_key() {
  return keys::renamed(
      keys::boolean("data.unlabeled", "false",
                    "folder, list, hdf5, npy: samples without labels, for predictions and self-supervised training. "
                    "folder: all images at any depth below data.path; list: lines contain paths only; hdf5, npy: "
                    "arrays of inputs only"),
      "data.unlabelled");
}

KeySpec cache_key() {
  return keys::text(
      "data.cache", "auto",
      "Folder that keeps lists of files, the positions of their lines, and the statistics of fields, so that "
      "folders and arrays are not read again. auto = $XDG_CACHE_HOME/lockstep or ~/.cache/lockstep; off = "
      "none");
}

Source folder_source() {
  const KeySpecs own = {
      val_path_key(), cache_key(), unlabeled_key(),
      keys::boolean("data.allow_empty", "false", "folder: accept classes without images. They keep their numbers")};
  return {.name = "folder",
          .help = "Images in one subfolder per class below data.path, or below its folders train, val and test",
          .keys = with_image_keys(own),
          .open_images = open_folder};
}

}  // namespace lockstep::data
