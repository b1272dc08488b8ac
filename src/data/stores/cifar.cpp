// SPDX-License-Identifier: BSD-3-Clause
// CIFAR-10 and CIFAR-100 in their binary versions.
// Source: A. Krizhevsky, "Learning multiple layers of features from tiny images", 2009, and its data set page.
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/data/image.hpp>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>

#include "data/source/hash.hpp"
#include "data/source/mapped_file.hpp"
#include "data/source/sources.hpp"
#include "data/stores/list_text.hpp"

namespace lockstep::data {

namespace {

namespace fs = std::filesystem;

constexpr int kCifarSide = 32;
constexpr std::size_t kPlane = std::size_t{kCifarSide} * kCifarSide;
constexpr std::size_t kImageBytes = 3 * kPlane;

/// A version of the data set.
struct CifarKind {
  std::string name;
  std::string folder;  ///< the usual name of the folder with the files
  std::vector<std::string> train_files;
  std::string test_file;
  std::string names_file;
  std::size_t label_bytes;  ///< number of label bytes before the pixels
  std::size_t label_byte;   ///< position of the label in use
  std::int64_t classes;
  std::string pickle;  ///< file of the Python version
};

CifarKind cifar10() {
  return {.name = "cifar10",
          .folder = "cifar-10-batches-bin",
          .train_files = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                          "data_batch_5.bin"},
          .test_file = "test_batch.bin",
          .names_file = "batches.meta.txt",
          .label_bytes = 1,
          .label_byte = 0,
          .classes = 10,
          .pickle = "data_batch_1"};
}

CifarKind cifar100(bool is_coarse) {
  return {.name = "cifar100",
          .folder = "cifar-100-binary",
          .train_files = {"train.bin"},
          .test_file = "test.bin",
          .names_file = is_coarse ? "coarse_label_names.txt" : "fine_label_names.txt",
          .label_bytes = 2,
          .label_byte = is_coarse ? std::size_t{0} : std::size_t{1},
          .classes = is_coarse ? 20 : 100,
          .pickle = "train"};
}

class CifarStore : public ImageStore {
 public:
  CifarStore(const CifarKind& kind, const std::vector<std::string>& paths, std::vector<std::string> class_names)
      : kind_(kind) {
    for (const std::string& path : paths) add_file(path);
    facts_ = {.size = ends_.back(),
              .classes = kind.classes,
              .class_names = std::move(class_names),
              .shape = PixelShape{kCifarSide, kCifarSide, 3}};
  }

  const StoreFacts& facts() const override { return facts_; }
  StoredImage read(std::int64_t index, ReadBuffer& buffer) const override {
    const std::uint8_t* planes = record(index).second + kind_.label_bytes;
    if (buffer.bytes.size() < kImageBytes) buffer.bytes.resize(kImageBytes);
    auto* const pixels = reinterpret_cast<std::uint8_t*>(buffer.bytes.data());
    for (std::size_t i = 0; i < kPlane; ++i) {
      for (std::size_t c = 0; c < 3; ++c) pixels[3 * i + c] = planes[c * kPlane + i];
    }
    check_unchanged(index);
    return {.pixels = {pixels, kImageBytes}, .shape = {kCifarSide, kCifarSide, 3}};
  }
  ImageTarget target(std::int64_t index) const override { return {.classes = {label(index)}}; }
  std::string name(std::int64_t index) const override {
    const auto [file, bytes] = record(index);
    const auto number = static_cast<std::size_t>(bytes - files_[file]->bytes().data()) / record_bytes();
    return fs::path(files_[file]->path()).filename().string() + ":" + std::to_string(number);
  }
  std::uint64_t digest() const override {
    return digest_.get([this] {
      std::uint64_t hash = hash_of({static_cast<std::uint64_t>(kind_.classes)});
      for (const auto& file : files_) hash = hash_of({hash, hash_of(file->bytes())});
      return hash;
    });
  }

 private:
  /// @throws DataError  a record is missing, or has another label than at the start
  void check_unchanged(std::int64_t index) const {
    const auto [number, bytes] = record(index);
    const MappedFile& file = *files_[number];
    const auto begin = static_cast<std::size_t>(bytes - file.bytes().data());
    const std::int64_t stored = bytes[kind_.label_byte];
    file.check(begin, begin + record_bytes());
    if (stored == label(index)) return;
    throw DataError(file.path(), "was changed while it was in use: record " + std::to_string(begin / record_bytes()) +
                                     " has the label " + std::to_string(stored) + " instead of " +
                                     std::to_string(label(index)) + "; restore the file and resume the run");
  }
  std::int64_t label(std::int64_t index) const { return labels_.at(static_cast<std::size_t>(index)); }

  std::size_t record_bytes() const { return kind_.label_bytes + kImageBytes; }

  void add_file(const std::string& path) {
    auto file = std::make_unique<const MappedFile>(path);
    const auto bytes = file->bytes();
    if (bytes.empty()) throw DataError(path, "is empty; it must contain records of CIFAR's binary version");
    if (bytes.size() % record_bytes() != 0) {
      throw DataError(path, "has " + std::to_string(bytes.size()) + " bytes, which is not a multiple of the " +
                                std::to_string(record_bytes()) + " bytes of a record; download the file again");
    }
    const std::size_t records = bytes.size() / record_bytes();
    for (std::size_t i = 0; i < records; ++i) {
      const std::int64_t label = bytes[i * record_bytes() + kind_.label_byte];
      labels_.push_back(static_cast<std::uint8_t>(label));
      if (label < kind_.classes) continue;
      throw DataError(path, "record " + std::to_string(i) + " has the label " + std::to_string(label) +
                                ", but labels of " + kind_.name + " are in [0, " + std::to_string(kind_.classes - 1) +
                                "]; download the file again");
    }
    ends_.push_back((ends_.empty() ? 0 : ends_.back()) + static_cast<std::int64_t>(records));
    files_.push_back(std::move(file));
  }

  /// The number of the file and the bytes of a record.
  std::pair<std::size_t, const std::uint8_t*> record(std::int64_t index) const {
    const auto end = std::upper_bound(ends_.begin(), ends_.end(), index);
    const auto file = static_cast<std::size_t>(end - ends_.begin());
    const std::int64_t begin = file == 0 ? 0 : ends_[file - 1];
    return {file, files_.at(file)->bytes().data() + static_cast<std::size_t>(index - begin) * record_bytes()};
  }

  CifarKind kind_;
  StoreFacts facts_;
  std::vector<std::unique_ptr<const MappedFile>> files_;
  std::vector<std::uint8_t> labels_;  // labels as they were when the files were opened
  std::vector<std::int64_t> ends_;    // number of records up to the end of each file
  LazyDigest digest_;
};

bool exists(const std::string& path) {
  std::error_code unreadable;  // counts as missing
  return fs::exists(path, unreadable);
}

/// The folder with the files of the binary version.
std::string find_cifar_folder(const std::string& path, const CifarKind& kind) {
  for (const std::string& folder : {path, path + "/" + kind.folder}) {
    if (exists(folder + "/" + kind.test_file) || exists(folder + "/" + kind.train_files.front())) return folder;
  }
  for (const std::string& folder : {path, path + "/cifar-10-batches-py", path + "/cifar-100-python"}) {
    if (!exists(folder + "/" + kind.pickle)) continue;
    throw DataError(folder,
                    "contains the Python version of the data set, which is not supported; download the binary "
                    "version, " +
                        kind.folder);
  }
  throw DataError(path, "has no file " + kind.train_files.front() + "; data.path must be the folder " + kind.folder +
                            ", or the one above it");
}

/// The training files, all of which must be there.
std::vector<std::string> train_paths(const std::string& folder, const CifarKind& kind) {
  std::vector<std::string> paths;
  for (const std::string& file : kind.train_files) {
    paths.push_back(folder + "/" + file);
    if (!exists(paths.back())) throw DataError(folder, "has no file " + file + "; download " + kind.folder + " again");
  }
  return paths;
}

/// The names of the classes in the file that belongs to the data set; empty = there is no such file.
std::vector<std::string> names_in(const std::string& folder, const CifarKind& kind) {
  const std::string path = folder + "/" + kind.names_file;
  if (!exists(path)) return {};
  std::vector<std::string> names = read_class_names(path);
  if (static_cast<std::int64_t>(names.size()) == kind.classes) return names;
  throw DataError(path, "contains " + std::to_string(names.size()) + " class names, but " + kind.name + " has " +
                            std::to_string(kind.classes) + " classes; download " + kind.folder + " again");
}

ImageSplits open_cifar(const Section& data, const UsedSplits& used, const CifarKind& kind) {
  const std::string folder = find_cifar_folder(required_path(data, "the folder " + kind.folder), kind);
  const std::string test = folder + "/" + kind.test_file;
  const std::vector<std::string> names = names_in(folder, kind);
  const auto train = std::make_shared<CifarStore>(kind, train_paths(folder, kind), names);
  if (!used.val) return {.train = train, .is_one_part = false};
  if (!exists(test)) throw DataError(folder, "has no file " + kind.test_file + "; download " + kind.folder + " again");
  return {.train = train, .val = std::make_shared<CifarStore>(kind, std::vector<std::string>{test}, names)};
}

}  // namespace

Source cifar10_source() {
  return {.name = "cifar10",
          .help = "CIFAR-10, binary version, in the folder data.path",
          .keys = undivided_image_keys(),
          .open_images = [](const Section& data, const UsedSplits& used) { return open_cifar(data, used, cifar10()); }};
}

Source cifar100_source() {
  return {.name = "cifar100",
          .help = "CIFAR-100, binary version, in the folder data.path",
          .keys = undivided_image_keys({keys::choice(
              "data.cifar_labels", "fine",
              "cifar100: labels of the 100 classes (fine) or of the 20 superclasses (coarse)", {"fine", "coarse"})}),
          .open_images = [](const Section& data, const UsedSplits& used) {
            return open_cifar(data, used, cifar100(data.text("cifar_labels") == "coarse"));
          }};
}

}  // namespace lockstep::data
