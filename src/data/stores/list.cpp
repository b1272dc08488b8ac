// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <filesystem>

#include "data/source/settings.hpp"
#include "data/source/sources.hpp"
#include "data/stores/cache_files.hpp"
#include "data/stores/file_store.hpp"
#include "data/stores/folder_listing.hpp"
#include "data/stores/list_text.hpp"

namespace lockstep::data {

namespace {

namespace fs = std::filesystem;

/// The number of classes that is known before the list is read; 0 = unknown.
ListLines::ListOptions list_options(const Section& data) {
  ListLines::ListOptions options{.cache = cache_folder(data.text("cache"))};
  if (data.boolean("unlabeled")) {
    if (data.text("target") != "class") {
      throw ConfigError(data.cite("unlabeled") + " and data.target = " + data.text("target") +
                        " contradict each other; remove one");
    }
    options.target = ListTarget::none;
  } else if (data.text("target") == "real") {
    options.target = ListTarget::numbers;
  } else if (data.text("target") == "mask") {
    options.target = ListTarget::masks;
  } else if (data.integer("classes") > 0) {
    options.classes = data.integer("classes");
    options.rule = "data.classes";
  } else if (!data.text("class_names").empty()) {
    options.classes = static_cast<std::int64_t>(read_class_names(data.text("class_names")).size());
    options.rule = "lines of data.class_names";
  }
  return options;
}

/// data.root, else the folder that a cached list names, else the folder of the list.
std::string root_of(const Section& data, const std::string& path, std::string_view text) {
  if (!data.text("root").empty()) return data.text("root");
  const std::string listed = root_in(text);
  return listed.empty() ? fs::path(path).parent_path().string() : listed;
}

/// @param train  the training split; null = this is the training split
std::shared_ptr<const FileStore> open_list_split(const Section& data, const std::string& path, const FileStore* train) {
  ListLines::ListOptions options = list_options(data);
  if (options.classes == 0 && train != nullptr) {
    options.classes = train->facts().classes;
    options.rule = "classes of the training part";
  }
  auto lines = std::make_shared<const ListLines>(ListText(path), options);
  const bool is_multilabel = train != nullptr ? train->facts().targets == TargetKind::label_sets : lines->has_several();
  if (lines->has_several() && !is_multilabel) {
    throw DataError(path, "has several labels per image, but the training part has one; use the same kind of labels");
  }
  if (train != nullptr && lines->numbers_per_line() != train->facts().numbers) {
    throw DataError(path, "has " + std::to_string(lines->numbers_per_line()) +
                              " numbers per image, but the training part has " +
                              std::to_string(train->facts().numbers) + "; use the same kind of labels");
  }
  const FileStore::FileStoreOptions store{.root = root_of(data, path, lines->text()),
                                          .classes = lines->classes(),
                                          .max_file_bytes = max_image_bytes(data),
                                          .has_label_sets = is_multilabel};
  return std::make_shared<FileStore>(std::move(lines), store);
}

ImageSplits open_list(const Section& data, const UsedSplits& used) {
  const std::string& path = required_path(data, "the path of a list with lines 'PATH LABEL'");
  const auto train = open_list_split(data, path, nullptr);
  if (data.text("val_path").empty()) return {.train = train};
  if (!used.val) return {.train = train, .is_one_part = false};
  return {.train = train, .val = open_list_split(data, data.text("val_path"), train.get())};
}

}  // namespace

Source list_source() {
  const KeySpecs own = {
      val_path_key(), cache_key(),
      keys::text("data.root", "", "list: folder to which the paths of a list are relative; empty = folder of the list"),
      keys::choice("data.target", "class",
                   "list: labels are classes (several separated by commas make a multi-label task), real numbers "
                   "(regression of one number, or of several separated by commas), or paths of images with the class "
                   "of each pixel (segmentation)",
                   {"class", "real", "mask"}),
      unlabeled_key()};
  return {.name = "list",
          .help = "Images that the text file data.path lists, one per line: PATH LABEL",
          .keys = with_image_keys(own),
          .open_images = open_list};
}

}  // namespace lockstep::data
