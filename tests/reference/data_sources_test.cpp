// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/data/source.hpp>

#include <map>

#include "reference/data.hpp"
#include "support/npy.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::testing::reference {

namespace {

namespace fs = std::filesystem;
using Values = std::map<std::string, std::string>;

Section data_section(const Values& values) {
  Section section = Section::with_defaults("data", data::data_keys());
  if (values.at("name") == "folder") section.set("cache", "off", "test");
  section.set("val_fraction", "0", "test");
  for (const auto& [key, value] : values) section.set(key, value, "test");
  return section;
}

data::ImageSplits open_stores(const Values& values) { return data::open_images(data_section(values)); }

/// The images of a store as bytes [N, 3, H, W].
std::vector<std::uint8_t> planes_of(const data::ImageStore& store, std::int64_t begin, std::int64_t end) {
  std::vector<std::uint8_t> planes;
  data::ReadBuffer buffer;
  for (std::int64_t i = begin; i < end; ++i) {
    const data::StoredImage image = store.read(i, buffer);
    for (std::size_t c = 0; c < 3; ++c) {
      for (std::size_t p = 0; p < image.pixels.size() / 3; ++p) planes.push_back(image.pixels[3 * p + c]);
    }
  }
  return planes;
}

/// Compares images [begin, begin + labels.size()) with those of one file.
/// @return  index after them
std::int64_t expect_records(const data::ImageStore& store, std::int64_t begin, const Json& entry,
                            const std::string& labels_field) {
  const std::vector<std::int64_t> labels = entry.at(labels_field);
  const std::int64_t end = begin + static_cast<std::int64_t>(labels.size());
  for (std::int64_t i = begin; i < end; ++i)
    EXPECT_EQ(store.target(i).classes.front(), labels[static_cast<std::size_t>(i - begin)]);
  const Json& images = entry.at("images");
  require_known_fields(images, {"dtype", "shape", "sha256_little_endian_row_major", "first", "sum"});
  EXPECT_EQ(images.at("shape"), Json({end - begin, 3, 32, 32}));
  EXPECT_EQ(sha256(planes_of(store, begin, end)), images.at("sha256_little_endian_row_major").get<std::string>());
  return end;
}

void check_cifar(const Json& files) {
  require_known_fields(files, {"cifar10", "cifar100"});
  const data::ImageSplits ten = open_stores({{"name", "cifar10"}, {"path", data_path("sources/cifar10").string()}});
  std::int64_t begin = 0;
  for (const auto& [file, entry] : files.at("cifar10").items()) {
    require_known_fields(entry, {"images", "labels"});
    if (file == "test_batch.bin") {
      EXPECT_EQ(expect_records(*ten.val, 0, entry, "labels"), ten.val->size());
    } else {
      begin = expect_records(*ten.train, begin, entry, "labels");
    }
  }
  EXPECT_EQ(begin, ten.train->size());
  EXPECT_EQ(ten.train->facts().class_names.at(9), "truck");
  for (const bool is_coarse : {false, true}) {
    const data::ImageSplits hundred = open_stores({{"name", "cifar100"},
                                                   {"path", data_path("sources/cifar100").string()},
                                                   {"cifar_labels", is_coarse ? "coarse" : "fine"}});
    const std::string field = is_coarse ? "coarse_labels" : "labels";
    for (const auto& [file, entry] : files.at("cifar100").items()) {
      require_known_fields(entry, {"images", "labels", "coarse_labels"});
      const data::ImageStore& store = file == "train.bin" ? *hundred.train : *hundred.val;
      EXPECT_EQ(expect_records(store, 0, entry, field), store.size()) << file;
    }
    EXPECT_EQ(hundred.train->facts().classes, is_coarse ? 20 : 100);
  }
}

void expect_samples(const data::ImageStore& store, const Json& samples, const std::string& what) {
  ASSERT_EQ(store.size(), static_cast<std::int64_t>(samples.size())) << what;
  data::ReadBuffer buffer;
  for (std::int64_t i = 0; i < store.size(); ++i) {
    const Json& sample = samples.at(static_cast<std::size_t>(i));
    EXPECT_EQ(store.name(i), sample.at(0).get<std::string>()) << what;
    EXPECT_EQ(store.target(i).classes.front(), sample.at(1).get<std::int64_t>()) << what;
    EXPECT_FALSE(store.read(i, buffer).file.empty());
  }
}

void check_folder(const Json& folder) {
  require_known_fields(folder, {"train", "val", "list"});
  const data::ImageSplits splits = open_stores({{"name", "folder"}, {"path", data_path("sources/folder").string()}});
  for (const auto& [name, store] : {std::pair{"train", splits.train}, {"val", splits.val}}) {
    EXPECT_EQ(store->facts().class_names, folder.at(name).at("classes").get<std::vector<std::string>>());
    expect_samples(*store, folder.at(name).at("samples"), name);
  }
  const Json& list = folder.at("list");
  for (const Json& file : list.at("files")) {
    const std::string path = data_path(file.get<std::string>());
    expect_samples(*open_stores({{"name", "list"}, {"path", path}}).train, list.at("samples"), path);
  }
}

/// The settings under which a damaged file is opened; empty = another source.
Values settings_of(const std::string& source, const std::string& path, const TemporaryFolder& folder) {
  if (source == "folder") return {{"name", "folder"}, {"path", path}};
  if (source == "list") return {{"name", "list"}, {"path", path}, {"classes", "3"}};
  if (source == "hdf5") return {{"name", "hdf5"}, {"path", path}, {"classes", "4"}};
  if (source == "npz") return {{"name", "npy"}, {"path", path}};
  if (source == "npy") {
    fs::copy(path, folder / "x.npy");
    write_npy(folder / "y.npy", {3}, {0, 1, 2});
    return {{"name", "npy"}, {"path", folder.path()}};
  }
  if (source == "image") {
    fs::remove_all(folder / "images");
    fs::create_directories(folder / "images/a");
    fs::copy(path, folder / "images/a");
    return {{"name", "folder"}, {"path", folder / "images"}};
  }
  if (source != "cifar10") return {};
  for (const char* name :
       {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"}) {
    fs::copy(path, folder.path(std::string(name) + ".bin"), fs::copy_options::overwrite_existing);
  }
  return {{"name", "cifar10"}, {"path", folder.path()}};
}

/// The message of the opening, or of the check, followed by those of all samples.
std::string faults_in(const Values& settings) {
  std::string faults;
  const auto add_fault = [&faults](const auto& call) {
    try {
      call();
    } catch (const DataError& error) {
      faults += error.what();
    }
  };
  add_fault([&] {
    data::open(data_section(settings), data::builtin_sources(), {.is_evaluation = true, .checks_images = true});
  });
  Values tolerant = settings;
  // So that the size of the first image need not be known. Rows of numbers are never replaced.
  if (settings.at("name") != "npy") tolerant["on_error"] = "replace";
  add_fault([&] {
    // An evaluation, because the folder of one file has one class.
    const data::Splits splits = data::open(data_section(tolerant), data::builtin_sources(), {.is_evaluation = true});
    for (std::int64_t i = 0; i < splits.train->size(); ++i) {
      add_fault([&] { splits.train->get(batch::draws_in_order(i, 1)); });
    }
    if (!splits.errors) return;
    for (const data::BadSample& bad : splits.errors->take_new()) faults += bad.reason;
  });
  return faults;
}

}  // namespace

void check_sources() {
  const Json document = load("data/sources.json");
  check_cifar(document.at("cifar"));
  check_folder(document.at("folder"));
}

void check_malformed_sources() {
  const Json document = load("data/malformed.json");
  std::map<std::string, int> counts;
  for (const Json& entry : document.at("verdicts")) {
    const std::string source = entry.at("source");
    const TemporaryFolder folder;
    const Values settings = settings_of(source, data_path(entry.at("file").get<std::string>()), folder);
    if (settings.empty()) continue;
    ++counts[source];
    const std::string message = faults_in(settings);
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    // LZF, the filter of h5py, is read.
    const bool is_lzf = entry.at("file") == "malformed/h5_lzf.h5";
    if (is_lzf) {
      EXPECT_EQ(message, "");
      continue;
    }
    if (entry.at("verdict") != "either") {
      EXPECT_EQ(message.empty(), entry.at("verdict") == "accept") << entry << message;
    }
    for (const Json& word : entry.at("message_names")) {
      EXPECT_NE(message.find(word.get<std::string>()), std::string::npos) << entry << message;
    }
  }
  EXPECT_EQ(counts.size(), 7U);
}

}  // namespace lockstep::testing::reference
