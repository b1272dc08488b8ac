// SPDX-License-Identifier: BSD-3-Clause
#include "data/rows/row_files.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "arrays/input_file.hpp"
#include "core/text/text.hpp"
#include "data/fields/field_paths.hpp"
#include "data/source/sources.hpp"

namespace lockstep::data {

namespace {

namespace fs = std::filesystem;

using SplitNames = std::vector<std::string>;

const SplitNames kTrainNames = {"train"};
const SplitNames kValNames = {"val", "valid", "validation"};
const SplitNames kTestNames = {"test"};
const SplitNames kWhole = {""};

/// The names of an array of inputs, of its targets and of their weights.
struct NamePair {
  std::string input;
  std::string target;       ///< "" = data.unlabeled
  std::string weight = {};  ///< "" = all samples weigh the same
};

/// The usual names; those of Caffe are data and label.
const std::vector<NamePair>& usual_pairs() {
  static const std::vector<NamePair> pairs = {{"images", "labels"}, {"data", "label"},       {"X", "y"},
                                              {"x", "y"},           {"features", "targets"}, {"inputs", "targets"},
                                              {"image", "label"}};
  return pairs;
}

/// Arrays with names: those of a file, or of the npy files of a folder.
struct NamedArrays {
  std::string path;
  bool is_folder = false;
  std::vector<std::string> names;

  bool has(const std::string& name) const { return std::ranges::find(names, name) != names.end(); }
  ArrayPlace place(const std::string& name) const {
    return is_folder ? ArrayPlace{path + "/" + name + ".npy", ""} : ArrayPlace{path, name};
  }
};

bool has_npy_ending(const fs::path& path) { return path.extension() == ".npy"; }

/// The npy files of a folder; no names if it has none.
NamedArrays npy_files_in(const std::string& folder) {
  NamedArrays found{.path = folder, .is_folder = true, .names = {}};
  std::error_code unreadable;  // counts as empty
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, unreadable)) {
    if (has_npy_ending(entry.path())) found.names.push_back(entry.path().stem().string());
  }
  std::ranges::sort(found.names);
  return found;
}

/// @throws DataError  the file is of another format
void require_format(const std::string& path, ArrayFormat format, bool is_unlabeled) {
  const arrays::InputFile file(path);
  std::string head(static_cast<std::size_t>(std::min<std::uint64_t>(file.size(), 6)), '\0');
  file.read(0, std::as_writable_bytes(std::span(head)));
  const bool is_npy = head == "\x93NUMPY";
  if (format == ArrayFormat::hdf5) {
    if (is_npy || head.starts_with("PK")) throw DataError(path, "is a file of NumPy, not HDF5; set data.name = npy");
    return;
  }
  if (head.starts_with("\x89HDF")) throw DataError(path, "is an HDF5 file; set data.name = hdf5");
  if (is_npy && !is_unlabeled) {
    throw DataError(path,
                    "has one array, but samples have inputs and targets; data.path must be the folder with x.npy and "
                    "y.npy, or an npz file. For inputs alone, set data.unlabeled=true");
  }
}

/// Finds files and arrays by the keys of section `data`.
class RowFinder {
 public:
  RowFinder(const Section& data, ArrayFormat format, arrays::OpenFiles& files)
      : format_(format), files_(files), is_unlabeled_(data.boolean("unlabeled")), pairs_(pairs_in(data)) {}

  /// The files or folders of a path.
  std::vector<NamedArrays> sets_of(const std::string& text, const std::string& cited) const {
    std::vector<std::string> words = {text};
    if (text.find('{') == std::string::npos) words = words_in(text);
    std::vector<NamedArrays> sets;
    for (const std::string& word : words) {
      NamedArrays folder = format_ == ArrayFormat::npy ? npy_files_in(word) : NamedArrays{};
      if (!folder.names.empty()) {
        sets.push_back(std::move(folder));
        continue;
      }
      for (const std::string& path : files_of(word, cited)) sets.push_back(set_of(path));
    }
    return sets;
  }

  /// The arrays of a split that the first file has under one of these names.
  std::optional<RowPlaces> find(const std::vector<NamedArrays>& sets, const SplitNames& splits) const {
    for (const std::string& split : splits) {
      if (const auto pair = pair_in(sets.front(), split)) return places_of(sets, *pair);
    }
    return std::nullopt;
  }

  /// @throws DataError  there are no such arrays
  RowPlaces require(const std::vector<NamedArrays>& sets, const SplitNames& splits) const {
    if (auto found = find(sets, splits)) return std::move(*found);
    const NamedArrays& set = sets.front();
    for (const std::string& split : splits) {
      for (const NamePair& pair : pairs_) {
        for (const NamePair& form : forms_of(pair, split)) {
          if (!set.has(form.input)) continue;
          throw DataError(set.path, "there is '" + utf8_text(form.input) + "', but no '" + utf8_text(form.target) +
                                        "'; name the arrays with data.input_array and data.target_array, or set "
                                        "data.unlabeled=true for inputs alone");
        }
      }
    }
    if (pairs_.size() == 1) throw DataError(set.path, arrays::no_such_array(pairs_.front().input, set.names));
    throw DataError(set.path, arrays::no_such_array("images", set.names) +
                                  "; name the arrays with data.input_array and data.target_array");
  }

 private:
  std::vector<NamePair> pairs_in(const Section& data) const {
    const std::string& input = data.text("input_array");
    const std::string& target = data.text("target_array");
    if (is_unlabeled_ && !target.empty()) {
      throw ConfigError(data.cite("target_array") + " and data.unlabeled = true contradict each other; remove one");
    }
    std::vector<NamePair> pairs;
    if (!input.empty() && !target.empty()) {
      pairs = {{input, target}};
    } else if (!input.empty()) {
      const std::size_t begin = input.rfind('/') + 1;
      for (const NamePair& usual : usual_pairs()) {
        if (input.substr(begin) == usual.input) pairs.push_back({input, input.substr(0, begin) + usual.target});
      }
      if (pairs.empty()) pairs = {{input, ""}};
      if (!is_unlabeled_ && pairs.front().target.empty()) {
        throw ConfigError(data.cite("input_array") + " = " + input +
                          ": the array of its targets is unknown; set data.target_array, or data.unlabeled=true");
      }
    } else {
      pairs = usual_pairs();
      if (!target.empty()) {
        for (NamePair& pair : pairs) pair.target = target;
      }
    }
    for (NamePair& pair : pairs) {
      if (is_unlabeled_) pair.target.clear();
      if (!is_unlabeled_) pair.weight = data.text("weight_array");
    }
    return pairs;
  }

  /// The names of a pair in a split: with a group, or with a word in front or behind.
  static std::vector<NamePair> forms_of(const NamePair& pair, const std::string& split) {
    if (split.empty()) return {pair};
    const auto with = [&](const std::string& before, const std::string& after) {
      const auto changed = [&](const std::string& name) { return name.empty() ? "" : before + name + after; };
      return NamePair{changed(pair.input), changed(pair.target), changed(pair.weight)};
    };
    return {with(split + "/", ""), with(split + "_", ""), with("", "_" + split)};
  }

  std::optional<NamePair> pair_in(const NamedArrays& set, const std::string& split) const {
    if (is_unlabeled_ && split.empty() && set.names == std::vector<std::string>{""}) return NamePair{};
    for (const NamePair& pair : pairs_) {
      for (const NamePair& form : forms_of(pair, split)) {
        if (set.has(form.input) && (is_unlabeled_ || set.has(form.target))) return form;
      }
    }
    return std::nullopt;
  }

  RowPlaces places_of(const std::vector<NamedArrays>& sets, const NamePair& pair) const {
    RowPlaces places;
    if (!pair.weight.empty() && !sets.front().has(pair.weight)) {
      throw DataError(sets.front().path, arrays::no_such_array(pair.weight, sets.front().names) +
                                             "; correct data.weight_array, or remove it");
    }
    for (const NamedArrays& set : sets) {
      for (const std::string& name : {pair.input, pair.target, pair.weight}) {
        if (!set.is_folder || name.empty() || set.has(name)) continue;
        throw DataError(set.path, "there is no file " + name + ".npy, which " + sets.front().path + " has");
      }
      places.inputs.push_back(set.place(pair.input));
      if (!is_unlabeled_) places.targets.push_back(set.place(pair.target));
      if (!pair.weight.empty()) places.weights.push_back(set.place(pair.weight));
    }
    const NamedArrays& first = sets.front();
    if (!first.is_folder && first.has("class_names")) places.class_names = files_.get(first.path)->texts("class_names");
    return places;
  }

  NamedArrays set_of(const std::string& path) const {
    require_format(path, format_, is_unlabeled_);
    return {.path = path, .is_folder = false, .names = files_.get(path)->names()};
  }

  /// The files of a path, of which a folder or a pattern can match those of other formats.
  std::vector<std::string> files_of(const std::string& text, const std::string& cited) const {
    std::vector<std::string> found = field_files(text, cited);
    if (found.size() == 1) return found;
    std::erase_if(found, [&](const fs::path& path) {
      const bool is_numpy = has_npy_ending(path) || path.extension() == ".npz";
      return is_numpy != (format_ == ArrayFormat::npy);
    });
    if (!found.empty()) return found;
    throw DataError(text, std::string("has no files of ") + (format_ == ArrayFormat::npy ? "NumPy" : "HDF5") +
                              "; check " + cited + " and data.name");
  }

  ArrayFormat format_;
  arrays::OpenFiles& files_;
  bool is_unlabeled_;
  std::vector<NamePair> pairs_;
};

SplitNames together(const SplitNames& first, const SplitNames& second) {
  SplitNames all = first;
  all.insert(all.end(), second.begin(), second.end());
  return all;
}

}  // namespace

RowParts find_rows(const Section& data, ArrayFormat format, arrays::OpenFiles& files) {
  const RowFinder finder(data, format, files);
  FieldPaths paths = field_splits(required_path(
      data, format == ArrayFormat::hdf5 ? "HDF5 files" : "an npz file, or a folder with x.npy and y.npy"));
  if (!data.text("val_path").empty()) paths.val = data.text("val_path");
  if (!data.text("test_path").empty()) paths.test = data.text("test_path");
  const std::vector<NamedArrays> sets = finder.sets_of(paths.train, data.cite("path"));
  RowParts parts;
  if (auto train = finder.find(sets, kTrainNames)) {
    parts.train = std::move(*train);
    parts.val = finder.find(sets, kValNames);
    parts.test = finder.find(sets, kTestNames);
  } else {
    parts.train = finder.require(sets, kWhole);
  }
  if (!paths.val.empty()) {
    const std::vector<NamedArrays> own = finder.sets_of(paths.val, data.cite("val_path"));
    parts.val = finder.require(own, together(together(kWhole, kValNames), kTestNames));
  }
  if (!paths.test.empty()) {
    const std::vector<NamedArrays> own = finder.sets_of(paths.test, data.cite("test_path"));
    parts.test = finder.require(own, together(kWhole, kTestNames));
  }
  parts.has_test_as_val = !parts.val && parts.test;
  return parts;
}

}  // namespace lockstep::data
