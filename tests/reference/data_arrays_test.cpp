// SPDX-License-Identifier: BSD-3-Clause
// Arrays of HDF5, npy and npz files: their numbers, and the samples of the sources hdf5 and npy.
#include <lockstep/core/error.hpp>
#include <lockstep/data/source.hpp>

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>

#include "arrays/array_file.hpp"
#include "arrays/packing.hpp"
#include "reference/data.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::testing::reference {

namespace {

namespace fs = std::filesystem;
using Values = std::map<std::string, std::string>;

// Sums of some thousand numbers in another order; all other numbers are exact.
constexpr Tolerance kSum = {.relative = 1e-9};

/// Section `data` without a validation part, unless the files have one.
Section array_section(const Values& values) {
  Section section = Section::with_defaults("data", data::data_keys());
  for (const auto& [key, value] : values) section.set(key, value, "test");
  section.set("val_fraction", "0", "test");
  return section;
}

std::string digest_of_bytes(const void* bytes, std::size_t count) {
  return sha256({static_cast<const std::uint8_t*>(bytes), count});
}

/// The first numbers and the sum of an entry.
void expect_numbers(const std::vector<double>& values, const Json& entry, bool is_rounded, const std::string& what) {
  const Json& first = entry.at("first");
  ASSERT_GE(values.size(), first.size()) << what;
  for (std::size_t i = 0; i < first.size(); ++i) {
    const double expected = first.at(i).is_boolean() ? first.at(i).get<bool>() : number(first.at(i));
    EXPECT_EQ(values[i], is_rounded ? static_cast<float>(expected) : expected) << what;
  }
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  const Tolerance tolerance = is_rounded ? Tolerance{.absolute = 1e-6, .relative = 1e-6} : kSum;
  expect_close({sum}, {number(entry.at("sum"))}, tolerance, what + ": sum");
}

/// "float64" for ">f8" and "float64".
bool is_big_endian_word(const std::string& dtype) { return dtype.starts_with(">"); }

/// Compares an array as it is stored.
void expect_array(const arrays::ArrayFile& file, const std::string& name, const Json& entry) {
  require_known_fields(entry, {"dtype", "shape", "sha256_little_endian_row_major", "first", "sum", "stored_dtype",
                               "chunks", "compression"});
  const std::string what = file.path() + " " + name;
  const arrays::ArrayInfo info = file.find(name);
  EXPECT_EQ(info.shape, entry.at("shape").get<std::vector<std::int64_t>>()) << what;
  const std::string dtype = entry.at("dtype");
  EXPECT_EQ(arrays::name_of(info.type), dtype == "bool" ? "uint8" : dtype) << what;
  std::vector<std::byte> bytes(static_cast<std::size_t>(size_of(whole(info))) * info.type.bytes);
  file.read(info, whole(info), bytes);
  EXPECT_EQ(digest_of_bytes(bytes.data(), bytes.size()), entry.at("sha256_little_endian_row_major").get<std::string>())
      << what;
  std::vector<double> values(bytes.size() / info.type.bytes);
  arrays::decode(arrays::Packing{.type = info.type}, bytes, std::span(values));
  expect_numbers(values, entry, false, what);
  if (!entry.contains("stored_dtype")) return;
  EXPECT_EQ(info.type.is_big_endian, is_big_endian_word(entry.at("stored_dtype"))) << what;
  EXPECT_EQ(Json(info.storage.chunk), entry.at("chunks").is_null() ? Json::array() : entry.at("chunks")) << what;
  const bool is_compressed = std::ranges::count(info.storage.filters, "deflate") > 0;
  EXPECT_EQ(is_compressed, entry.at("compression") == "gzip") << what;
}

/// The values of all samples, as numbers.
std::vector<double> values_of(const data::Dataset& dataset, const std::string& name) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < dataset.size(); ++i) {
    const batch::Batch batch = dataset.get(batch::draws_in_order(i, 1));
    const at::Tensor tensor = batch.at(name).as<at::Tensor>().to(at::kDouble).contiguous();
    values.insert(values.end(), tensor.const_data_ptr<double>(), tensor.const_data_ptr<double>() + tensor.numel());
  }
  return values;
}

/// Compares values that became float32, or labels.
void expect_samples(const std::vector<double>& values, const Json& entry, const std::string& what) {
  if (entry.at("dtype") == "float32") {
    std::vector<float> stored(values.begin(), values.end());
    EXPECT_EQ(digest_of_bytes(stored.data(), stored.size() * sizeof(float)),
              entry.at("sha256_little_endian_row_major").get<std::string>())
        << what;
  }
  expect_numbers(values, entry, true, what);
}

/// Rows of numbers.
void expect_rows(const Values& settings, const Json& inputs, const Json& targets) {
  const std::string what = settings.at("path");
  SCOPED_TRACE(what);
  const data::Splits splits = data::open(array_section(settings), data::builtin_sources(), {.is_evaluation = true});
  const std::vector<std::int64_t> shape = inputs.at("shape");
  EXPECT_EQ(splits.train->size(), shape.front());
  EXPECT_EQ(splits.train->task().sample_shape, std::vector<std::int64_t>(shape.begin() + 1, shape.end()));
  expect_samples(values_of(*splits.train, "data"), inputs, what);
  expect_samples(values_of(*splits.train, "label"), targets, what);
}

/// Images of bytes [N, H, W, 3] and their labels.
void expect_images(const data::ImageStore& store, const Json& images, const Json& labels, const std::string& what) {
  const std::vector<std::int64_t> shape = images.at("shape");
  ASSERT_EQ(store.size(), shape.front()) << what;
  std::vector<std::uint8_t> pixels;
  std::vector<double> classes;
  data::ReadBuffer buffer;
  for (std::int64_t i = 0; i < store.size(); ++i) {
    const data::StoredImage image = store.read(i, buffer);
    EXPECT_EQ(image.shape, (data::PixelShape{static_cast<int>(shape[1]), static_cast<int>(shape[2]), 3})) << what;
    pixels.insert(pixels.end(), image.pixels.begin(), image.pixels.end());
    classes.push_back(static_cast<double>(store.target(i).classes.front()));
  }
  EXPECT_EQ(digest_of_bytes(pixels.data(), pixels.size()),
            images.at("sha256_little_endian_row_major").get<std::string>())
      << what;
  expect_numbers(classes, labels, false, what);
}

void check_hdf5_sources(const Json& files) {
  const auto path = [](const std::string& name) { return data_path("sources/h5/" + name).string(); };
  const Json& images = files.at("images.h5");
  const data::ImageSplits one = data::open_images(array_section({{"name", "hdf5"}, {"path", path("images.h5")}}));
  expect_images(*one.train, images.at("images"), images.at("labels"), "images.h5");
  EXPECT_EQ(std::ssize(one.train->facts().class_names), one.train->facts().classes);
  EXPECT_FALSE(one.train->facts().class_names.empty());

  const Json& parts = files.at("splits.h5");
  const data::ImageSplits two = data::open_images(array_section({{"name", "hdf5"}, {"path", path("splits.h5")}}));
  expect_images(*two.train, parts.at("train/images"), parts.at("train/labels"), "splits.h5 train");
  expect_images(*two.test, parts.at("test/images"), parts.at("test/labels"), "splits.h5 test");
  EXPECT_EQ(two.val, two.test);

  for (const std::string file : {"caffe_0.h5", "caffe_1.h5"}) {
    expect_rows({{"name", "hdf5"}, {"path", path(file)}, {"target_kind", "class"}}, files.at(file).at("data"),
                files.at(file).at("label"));
  }
  expect_rows({{"name", "hdf5"}, {"path", path("regression.h5")}}, files.at("regression.h5").at("features"),
              files.at("regression.h5").at("targets"));
  expect_rows({{"name", "hdf5"}, {"path", path("half.h5")}}, files.at("half.h5").at("X"), files.at("half.h5").at("y"));
}

/// Files of Caffe are one data set.
void check_several_files(const Json& files) {
  const data::Splits both = data::open(array_section(
      {{"name", "hdf5"}, {"path", data_path("sources/h5/").string() + "caffe_*.h5"}, {"target_kind", "class"}}));
  std::vector<double> values = values_of(*both.train, "data");
  double sum = 0;
  std::int64_t size = 0;
  for (const std::string file : {"caffe_0.h5", "caffe_1.h5"}) {
    const Json& entry = files.at(file).at("data");
    EXPECT_EQ(values[static_cast<std::size_t>(size) * values.size() / static_cast<std::size_t>(both.train->size())],
              number(entry.at("first").at(0)));
    size += entry.at("shape").at(0).get<std::int64_t>();
    sum += number(entry.at("sum"));
  }
  EXPECT_EQ(both.train->size(), size);
  expect_close({std::accumulate(values.begin(), values.end(), 0.0)}, {sum}, kSum, "caffe");
}

void check_npy_sources(const Json& arrays) {
  for (const auto& [file, entry] : arrays.at("npy").items()) {
    const std::vector<std::int64_t> shape = entry.at("shape");
    if (shape.size() != 2 || shape.front() == 0) continue;
    for (const std::string labels : {"i8.npy", "i2.npy", "b1.npy"}) {
      const TemporaryFolder folder;
      fs::copy(data_path("sources/npy/" + file), folder / "x.npy");
      fs::copy(data_path("sources/npy/" + labels), folder / "y.npy");
      expect_rows({{"name", "npy"}, {"path", folder.path()}}, entry, arrays.at("npy").at(labels));
    }
  }
  for (const auto& [file, members] : arrays.at("npz").items()) {
    const std::string path = data_path("sources/npz/" + file);
    expect_images(*data::open_images(array_section({{"name", "npy"}, {"path", path}})).train, members.at("x.npy"),
                  members.at("y.npy"), file);
  }
}

}  // namespace

void check_arrays() {
  const Json document = load("data/sources.json").at("arrays");
  require_known_fields(document, {"hdf5", "npy", "npz"});
  for (const auto& [file, sets] : document.at("hdf5").items()) {
    const auto opened = arrays::open_arrays(data_path("sources/h5/" + file));
    for (const auto& [name, entry] : sets.items()) expect_array(*opened, name, entry);
  }
  for (const auto& [file, entry] : document.at("npy").items()) {
    expect_array(*arrays::open_arrays(data_path("sources/npy/" + file)), "", entry);
  }
  for (const auto& [file, members] : document.at("npz").items()) {
    const auto opened = arrays::open_arrays(data_path("sources/npz/" + file));
    for (const auto& [member, entry] : members.items()) {
      expect_array(*opened, fs::path(member).stem().string(), entry);
    }
  }
  check_hdf5_sources(document.at("hdf5"));
  check_several_files(document.at("hdf5"));
  check_npy_sources(document);
}

}  // namespace lockstep::testing::reference
