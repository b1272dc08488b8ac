// SPDX-License-Identifier: BSD-3-Clause
// The sources `hdf5` and `npy` on small files.
#include <lockstep/core/error.hpp>
#include <lockstep/data/source.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "checkpoints/format/hdf5.hpp"
#include "data/rows/row_dataset.hpp"
#include "data/stores/image_splits.hpp"
#include "files.hpp"
#include "support/npy.hpp"
#include "unit/arrays/npy_bytes.hpp"

namespace lockstep::data {
namespace rows_test {

using arrays::npy_bytes;
using checkpoints::Handle;
using Keys = std::map<std::string, std::string>;

namespace fs = std::filesystem;

/// A folder with x.npy and y.npy.
class RowsTest : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& descr, const std::string& shape, const std::string& bytes) {
    folder_.write(name + ".npy", npy_bytes(descr, shape, bytes));
  }
  void write(const std::string& name, const std::vector<std::int64_t>& shape, const std::vector<float>& values) {
    testing::write_npy(folder_ / (name + ".npy"), shape, values);
  }
  /// Four samples [2] of 0, 1, ...
  void write_inputs() { write("x", {4, 2}, {0, 1, 2, 3, 4, 5, 6, 7}); }

  Keys keys(Keys more = {}) const {
    more.try_emplace("name", "npy");
    more.try_emplace("path", folder_.path());
    more.try_emplace("val_fraction", "0");
    return more;
  }
  Splits open(const Keys& more = {}) const { return open_with(keys(more)); }
  template <class Error>
  std::string fault(const Keys& more = {}) const {
    return sentence_of<Error>([&] { open(more); });
  }
  /// The message without the folder.
  template <class Error>
  std::string fault_here(const Keys& more = {}) const {
    std::string text = fault<Error>(more);
    for (auto begin = text.find(folder_.path()); begin != std::string::npos; begin = text.find(folder_.path())) {
      text.replace(begin, folder_.path().size(), "DIR");
    }
    return text;
  }

  TemporaryFolder folder_;
};

TEST_F(RowsTest, IntegersAreClasses) {
  write_inputs();
  write("y", "|i1", "4,", std::string("\2\0\1\2", 4));
  const Splits splits = open();
  EXPECT_EQ(splits.train->task().kind, TaskKind::classification);
  EXPECT_EQ(splits.train->task().classes, 3);
  EXPECT_EQ(splits.train->task().sample_shape, std::vector<std::int64_t>{2});
  const batch::Batch batch = get(*splits.train, {3, 1});
  EXPECT_EQ(values_of<float>(batch.input()), (std::vector<float>{6, 7, 2, 3}));
  EXPECT_EQ(values_of<std::int64_t>(batch.target()), (std::vector<std::int64_t>{2, 0}));
  EXPECT_EQ(labels_of(*splits.train), (std::vector<std::int64_t>{2, 0, 1, 2}));
  EXPECT_EQ(sample_name_of(*splits.train, 3), "x.npy:3");
  EXPECT_EQ(open({{"classes", "5"}}).train->task().classes, 5);
}

TEST_F(RowsTest, FloatingPointNumbersAreARegressionUnlessClassesAreKnown) {
  write_inputs();
  write("y", {4, 1}, {1, 0, 2, 1});
  const Splits real = open();
  EXPECT_EQ(real.train->task().kind, TaskKind::regression);
  EXPECT_EQ(real.train->task().classes, 1);
  EXPECT_EQ(values_of<float>(get(*real.train, {2}).target()), std::vector<float>{2});
  for (const Keys& known : {Keys{{"target_kind", "class"}}, Keys{{"classes", "3"}}}) {
    EXPECT_EQ(open(known).train->task().kind, TaskKind::classification);
  }
  EXPECT_EQ(open({{"classes", "3"}, {"target_kind", "real"}}).train->task().kind, TaskKind::regression);
  write("y", {4}, {1, 0, 1.5, 1});
  EXPECT_EQ(fault_here<DataError>({{"classes", "3"}}),
            "DIR/y.npy: sample 2: the label 1.5 is not an integer, but the targets are classes; correct it, or set "
            "data.target_kind = real");
}

TEST_F(RowsTest, SeveralNumbersAreARegression) {
  write_inputs();
  write("y", {4, 3}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  const Splits splits = open();
  EXPECT_EQ(splits.train->task().classes, 3);
  EXPECT_EQ(values_of<float>(get(*splits.train, {1}).target()), (std::vector<float>{3, 4, 5}));
}

TEST_F(RowsTest, BytesOfZeroAndOneMarkClasses) {
  write_inputs();
  write("y", "|b1", "4, 3", std::string("\1\0\0\0\1\0\0\0\1\0\1\0", 12));
  EXPECT_EQ(open().train->task().kind, TaskKind::classification);
  EXPECT_EQ(labels_of(*open().train), (std::vector<std::int64_t>{0, 1, 2, 1}));
  write("y", "|u1", "4, 3", std::string("\1\1\0\0\1\0\0\0\1\0\0\0", 12));
  const Splits sets = open();
  EXPECT_EQ(sets.train->task().kind, TaskKind::multilabel);
  EXPECT_EQ(sets.train->task().classes, 3);
  EXPECT_EQ(values_of<float>(get(*sets.train, {0, 3}).target()), (std::vector<float>{1, 1, 0, 0, 0, 0}));
  write("y", "|u1", "4, 3", std::string("\1\1\0\0\2\0\0\0\1\0\0\0", 12));
  EXPECT_EQ(open().train->task().kind, TaskKind::regression);
  EXPECT_EQ(fault_here<DataError>({{"target_kind", "class"}}),
            "DIR/y.npy: sample 1: the target 2 is neither 0 nor 1, but each column is a class; set data.target_kind = "
            "real to predict the numbers");
}

TEST_F(RowsTest, BytesOfTheRightShapeAreImages) {
  write("y", "|u1", "2,", std::string("\0\1", 2));
  const std::string pixels("\0\1\2\3\4\5\6\7\10\11\12\13\14\15\16\17\20\21\22\23\24\25\26\27", 24);
  struct Row {
    std::string shape;
    Keys keys;
    PixelShape pixels;
    std::vector<int> first;  // the first pixels of sample 1
  };
  const std::vector<Row> rows = {{"2, 2, 2, 3", {}, {2, 2, 3}, {12, 13, 14, 15}},
                                 {"2, 3, 2, 2", {}, {2, 2, 3}, {12, 16, 20, 13}},
                                 {"2, 3, 4", {}, {3, 4, 1}, {12, 13, 14, 15}},
                                 {"2, 1, 3, 4", {}, {1, 3, 3}, {12, 13, 14, 16}},  // the fourth channel is alpha
                                 {"2, 1, 3, 4", {{"layout", "nchw"}}, {3, 4, 1}, {12, 13, 14, 15}},
                                 {"2, 3, 1, 4", {{"layout", "nchw"}}, {1, 4, 3}, {12, 16, 20, 13}}};
  for (const Row& row : rows) {
    SCOPED_TRACE(row.shape);
    write("x", "|u1", row.shape, pixels);
    const ImageSplits splits = open_images(section(keys(row.keys)));
    EXPECT_EQ(splits.train->facts().shape, row.pixels);
    ReadBuffer buffer;
    const StoredImage image = splits.train->read(1, buffer);
    EXPECT_TRUE(std::equal(row.first.begin(), row.first.end(), image.pixels.begin()));
    EXPECT_EQ(splits.train->target(1).classes, std::vector<std::int64_t>{1});
    EXPECT_EQ(open(row.keys).train->task().sample_shape,
              (std::vector<std::int64_t>{row.pixels.channels, row.pixels.height, row.pixels.width}));
  }
  EXPECT_EQ(open({{"transform", "resize,size=8"}, {"layout", "nchw"}}).train->task().sample_shape,
            (std::vector<std::int64_t>{3, 8, 32}));
}

TEST_F(RowsTest, ImagesCanHaveSeveralNumbers) {
  write("x", "|u1", "2, 2, 2", std::string("\0\1\2\3\4\5\6\7", 8));
  write("y", {2, 3}, {0, 1, 2, 3.5, 4, 5});
  const Splits splits = open();
  EXPECT_EQ(splits.train->task().kind, TaskKind::regression);
  EXPECT_EQ(splits.train->task().classes, 3);
  const batch::Batch batch = get(*splits.train, {1, 0});
  EXPECT_EQ(batch.input().sizes(), (std::vector<std::int64_t>{2, 1, 2, 2}));
  EXPECT_EQ(values_of<float>(batch.target()), (std::vector<float>{3.5, 4, 5, 0, 1, 2}));
}

TEST_F(RowsTest, SamplesHaveTheWeightsOfAnArray) {
  write_inputs();
  write("y", {4, 1}, {1, 0, 2, 1});
  EXPECT_FALSE(open().train->task().has_weights);
  const std::uint64_t digest = open().train->digest();
  write("w", {4}, {0.5, 0, 2, 3});
  const Splits splits = open({{"weight_array", "w"}});
  EXPECT_TRUE(splits.train->task().has_weights);
  EXPECT_EQ(splits.train->roles().targets, std::vector<std::string>{"label"});
  const batch::Batch batch = get(*splits.train, {2, 0});
  EXPECT_EQ(batch.tensor("weight").sizes(), std::vector<std::int64_t>{2});
  EXPECT_EQ(values_of<float>(batch.tensor("weight")), (std::vector<float>{2, 0.5}));
  EXPECT_EQ(open().train->digest(), digest);
  EXPECT_NE(splits.train->digest(), digest);
  EXPECT_FALSE(open({{"weight_array", "w"}, {"unlabeled", "true"}}).train->task().has_weights);

  EXPECT_EQ(fault_here<DataError>({{"weight_array", "v"}}),
            "DIR: there is no variable 'v'; there are w, x, y; correct data.weight_array, or remove it");
  write("w", {3}, {1, 1, 1});
  EXPECT_EQ(fault_here<DataError>({{"weight_array", "w"}}),
            "DIR/x.npy: has 4 samples, but DIR/w.npy has 3; both must have the same number");
  write("w", {4, 2}, {1, 1, 1, 1, 1, 1, 1, 1});
  EXPECT_EQ(fault_here<DataError>({{"weight_array", "w"}}),
            "DIR/w.npy: has the shape [4, 2], but data.weight_array (command line) needs one number per sample");
  for (const float bad : {-1.0F, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    write("w", {4, 1}, {1, 1, bad, 1});
    const Splits damaged = open({{"weight_array", "w"}});
    const std::string sentence = sentence_of<DataError>([&] { get(*damaged.train, {2}); });
    EXPECT_NE(sentence.find("w.npy: sample 2: the weight is "), std::string::npos) << sentence;
    EXPECT_NE(sentence.find("finite numbers of at least 0"), std::string::npos) << sentence;
  }
}

TEST_F(RowsTest, ImagesAndSplitsHaveWeights) {
  write("train_x", "|u1", "2, 2, 2", std::string("\0\1\2\3\4\5\6\7", 8));
  write("train_y", {2, 2}, {1, 2, 3.5, 4});
  write("train_w", {2}, {0.25, 4});
  write("test_x", "|u1", "1, 2, 2", std::string("\0\1\2\3", 4));
  write("test_y", {1, 2}, {1, 2});
  write("test_w", {1}, {7});
  const Splits splits = open({{"weight_array", "w"}});
  EXPECT_TRUE(splits.train->task().has_weights);
  const batch::Batch batch = get(*splits.train, {1, 0});
  EXPECT_EQ(values_of<float>(batch.tensor("weight")), (std::vector<float>{4, 0.25}));
  EXPECT_EQ(values_of<float>(batch.target()), (std::vector<float>{3.5, 4, 1, 2}));
  EXPECT_EQ(values_of<float>(get(*splits.test, {0}).tensor("weight")), std::vector<float>{7});
}

TEST_F(RowsTest, OtherNumbersAreNoImages) {
  write("y", "|u1", "2,", std::string("\0\1", 2));
  write("x", {2, 2, 1, 3}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  EXPECT_EQ(open().train->task().sample_shape, (std::vector<std::int64_t>{2, 1, 3}));
  const Splits planes = open({{"layout", "nhwc"}});
  EXPECT_EQ(planes.train->task().sample_shape, (std::vector<std::int64_t>{3, 2, 1}));
  EXPECT_EQ(values_of<float>(get(*planes.train, {1}).input()), (std::vector<float>{6, 9, 7, 10, 8, 11}));
  EXPECT_EQ(fault_here<ConfigError>({{"transform", "horizontal_flip"}}),
            "data.transform (command line) is for images, but DIR/x.npy has float32 numbers of the shape [2, 1, 3] per "
            "sample; remove the key, or store images as uint8 numbers");
  EXPECT_EQ(fault_here<ConfigError>({{"layout", "chw"}}), "data.layout (command line): 'chw' is neither nhwc nor nchw");
  EXPECT_FALSE(find_images(section(keys()), builtin_sources()).has_value());
  EXPECT_EQ(sentence_of<ConfigError>([&] { open_images(section(keys())); }).substr(0, 65),
            "data.name (command line): 'npy' does not provide image files; cho");
}

TEST_F(RowsTest, SplitsAreGroupsOrPartsOfNames) {
  write("train_x", {3, 1}, {0, 1, 2});
  write("train_y", {3}, {0, 1, 2});
  write("test_x", {2, 1}, {3, 4});
  write("test_y", {2}, {3, 4});
  const Splits prefixed = open();
  EXPECT_EQ(prefixed.train->size(), 3);
  EXPECT_EQ(prefixed.test->size(), 2);
  EXPECT_EQ(prefixed.val, prefixed.test);
  EXPECT_EQ(prefixed.notes.size(), 1U);
  for (const std::string split : {"train", "test"}) {
    for (const std::string name : {"x", "y"}) {
      fs::rename(folder_ / (split + "_" + name + ".npy"), folder_ / (name + "_" + split + ".npy"));
    }
  }
  EXPECT_EQ(open().test->size(), 2);
  for (const std::string split : {"train", "test"}) {
    fs::create_directory(folder_ / split);
    for (const std::string name : {"x", "y"}) {
      fs::rename(folder_ / (name + "_" + split + ".npy"), folder_ / (split + "/" + name + ".npy"));
    }
  }
  EXPECT_EQ(open().test->size(), 2);
  EXPECT_EQ(open({{"path", folder_ / "train"}, {"val_path", folder_ / "test"}}).val->size(), 2);
  EXPECT_EQ(open({{"path", folder_ / "train"}}).val, nullptr);
}

TEST_F(RowsTest, OnePartIsDividedByAPermutation) {
  std::vector<float> numbers(20);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
  write("x", {20, 1}, numbers);
  write("y", {20}, numbers);
  const Splits splits = open({{"val_fraction", "0.25"}});
  ASSERT_EQ(splits.train->size(), 15);
  ASSERT_EQ(splits.val->size(), 5);
  std::set<float> all;
  for (const auto& dataset : {splits.train, splits.val}) {
    for (std::int64_t i = 0; i < dataset->size(); ++i) {
      const batch::Batch batch = get(*dataset, {i});
      EXPECT_EQ(values_of<float>(batch.input()), values_of<float>(batch.target()));
      EXPECT_EQ(sample_name_of(*dataset, i),
                "x.npy:" + std::to_string(static_cast<int>(*batch.input().data_ptr<float>())));
      all.insert(*batch.input().data_ptr<float>());
    }
  }
  EXPECT_EQ(all.size(), 20U);
  EXPECT_NE(open({{"val_fraction", "0.25"}, {"split_seed", "1"}}).train->digest(), splits.train->digest());
}

TEST_F(RowsTest, TheDigestChangesWithTheNumbers) {
  write_inputs();
  write("y", {4}, {0, 1, 2, 3});
  const std::uint64_t digest = open().train->digest();
  EXPECT_EQ(open().train->digest(), digest);
  write("y", {4}, {0, 1, 2, 4});
  EXPECT_NE(open().train->digest(), digest);
}

TEST_F(RowsTest, InputsAloneNeedNoTargets) {
  write_inputs();
  const Splits splits = open({{"unlabeled", "true"}});
  EXPECT_EQ(values_of<std::int64_t>(get(*splits.train, {0, 1}).target()),
            (std::vector<std::int64_t>{kIgnored, kIgnored}));
  EXPECT_EQ(open({{"unlabeled", "true"}, {"path", folder_ / "x.npy"}}).train->size(), 4);
  EXPECT_EQ(fault_here<DataError>(),
            "DIR: there is 'x', but no 'y'; name the arrays with data.input_array and "
            "data.target_array, or set data.unlabeled=true for inputs alone");
  EXPECT_EQ(fault_here<DataError>({{"path", folder_ / "x.npy"}}).substr(0, 48),
            "DIR/x.npy: has one array, but samples have input");
}

TEST_F(RowsTest, ArraysCanBeNamed) {
  write("a", {2, 1}, {1, 2});
  write("b", {2}, {3, 4});
  EXPECT_EQ(values_of<float>(get(*open({{"input_array", "a"}, {"target_array", "b"}}).train, {1}).target()),
            std::vector<float>{4});
  EXPECT_EQ(fault_here<ConfigError>({{"input_array", "a"}}),
            "data.input_array (command line) = a: the array of its targets is unknown; set data.target_array, or "
            "data.unlabeled=true");
  EXPECT_EQ(fault_here<DataError>({{"input_array", "c"}, {"target_array", "b"}}),
            "DIR: there is no variable 'c'; there are a, b");
  EXPECT_EQ(fault_here<DataError>(),
            "DIR: there is no variable 'images'; there are a, b; name the arrays with "
            "data.input_array and data.target_array");
}

TEST_F(RowsTest, EachFaultGetsOneSentence) {
  write_inputs();
  write("y", {3}, {0, 1, 2});
  EXPECT_EQ(fault_here<DataError>(), "DIR/x.npy: has 4 samples, but DIR/y.npy has 3; both must have the same number");
  write("y", "<i8", "4,", std::string(31, '\0') + "\1");
  EXPECT_EQ(
      fault_here<DataError>({{"classes", "3"}}),
      "DIR/y.npy: sample 3: the label is 72057594037927936, but labels are from 0 to 2 (data.classes = 3); correct "
      "it");
  write("y", "|i1", "4,", std::string("\0\0\0\377", 4));
  EXPECT_NE(fault_here<DataError>().find("DIR/y.npy: sample 3: the label is -1"), std::string::npos);
  write("y", {4, 2, 1}, {0, 1, 2, 3, 4, 5, 6, 7});
  EXPECT_NE(fault_here<DataError>().find("DIR/y.npy: has the shape [4, 2, 1], but targets have one number"),
            std::string::npos);
  write("y", {}, {1});
  EXPECT_NE(fault_here<DataError>().find("DIR/y.npy: is a single number"), std::string::npos);
  write("y", {0}, {});
  EXPECT_EQ(fault_here<DataError>(), "DIR/y.npy: has no samples: its shape is [0]");
  write("y", {4}, {0, 1, std::numeric_limits<float>::quiet_NaN(), 3});
  const Splits splits = open();
  EXPECT_NE(sentence_of<DataError>([&] { get(*splits.train, {2}); }).find("y.npy: sample 2: number 0 is nan"),
            std::string::npos);
}

/// Twelve samples of two bytes in x and of one in y, in chunks of these numbers of samples.
void write_chunks(const std::string& path, hsize_t of_x, hsize_t of_y, hid_t type_of_y) {
  const Handle file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose, "H5Fcreate");
  for (const char* const name : {"x", "y"}) {
    const bool is_x = *name == 'x';
    const std::vector<hsize_t> shape = {12, 4, 4}, chunk = {is_x ? of_x : of_y, 4, 4};
    const int axes = is_x ? 3 : 1;
    const Handle space(H5Screate_simple(axes, shape.data(), nullptr), H5Sclose, "space");
    const Handle list(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "H5Pcreate");
    checkpoints::checked(H5Pset_chunk(list.id(), axes, chunk.data()), "H5Pset_chunk");
    const hid_t type = is_x ? H5T_STD_U8LE : type_of_y;
    const Handle set(H5Dcreate2(file.id(), name, type, space.id(), H5P_DEFAULT, list.id(), H5P_DEFAULT), H5Dclose,
                     "set");
    std::vector<std::uint8_t> numbers(12 * 16);
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::uint8_t>(is_x ? i : i % 2);
    checkpoints::checked(H5Dwrite(set.id(), H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, numbers.data()), "write");
  }
}

std::vector<std::int64_t> groups_of(std::int64_t count, std::int64_t size) {
  std::vector<std::int64_t> groups;
  for (std::int64_t i = 0; i < count; ++i) groups.push_back(i / size);
  return groups;
}

TEST_F(RowsTest, SamplesOfNumbersKnowTheirChunks) {
  const auto chunks_with = [&](Keys more) {
    more.try_emplace("name", "hdf5");
    more.try_emplace("path", folder_ / "a.h5");
    more.try_emplace("layout", "");
    more.try_emplace("target_kind", "real");
    more.try_emplace("input_array", "y");
    more.try_emplace("target_array", "y");
    return chunks_of(*open(more).train);
  };
  write_chunks(folder_ / "a.h5", 5, 3, H5T_IEEE_F32LE);
  EXPECT_EQ(chunks_with({}), groups_of(12, 3));
  // Numbers of two files follow one another; a chunk never contains samples of both.
  write_chunks(folder_ / "b.h5", 5, 7, H5T_IEEE_F32LE);
  std::vector<std::int64_t> both = groups_of(12, 3);
  for (const std::int64_t chunk : groups_of(12, 7)) both.push_back(4 + chunk);
  EXPECT_EQ(chunks_with({{"path", folder_ / "a.h5" + "," + (folder_ / "b.h5")}}), both);
  // Positions of a permutation have the chunks of their samples.
  const Splits splits = open({{"name", "hdf5"},
                              {"path", folder_ / "a.h5"},
                              {"input_array", "y"},
                              {"target_array", "y"},
                              {"target_kind", "real"},
                              {"val_fraction", "0.25"}});
  const std::vector<std::int64_t> chunks = chunks_of(*splits.train);
  ASSERT_EQ(chunks.size(), 9U);
  for (std::int64_t i = 0; i < 9; ++i) {
    const std::string name = sample_name_of(*splits.train, i);
    EXPECT_EQ(chunks[static_cast<std::size_t>(i)], std::stoll(name.substr(name.rfind(':') + 1)) / 3) << name;
  }
  write_inputs();
  write("y", {4}, {0, 1, 2, 3});
  EXPECT_EQ(chunks_of(*open({{"target_kind", "real"}}).train), groups_of(4, 1));
}

TEST_F(RowsTest, ImagesKnowTheirChunks) {
  write_chunks(folder_ / "a.h5", 5, 3, H5T_STD_U8LE);
  const Splits splits = open({{"name", "hdf5"}, {"path", folder_ / "a.h5"}, {"input_array", "x"}});
  EXPECT_EQ(chunks_of(*splits.train), groups_of(12, 5));
  const ChunkBytes before = chunk_bytes_of(*splits.train);
  get(*splits.train, {0, 4});
  const ChunkBytes bytes = chunk_bytes_of(*splits.train).since(before);
  EXPECT_EQ(bytes.unpacked, 5 * 16);
  EXPECT_EQ(bytes.used, 2 * 16);
}

/// An HDF5 file with an array that is never written.
void write_sparse(const std::string& path, hsize_t samples) {
  const Handle file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose, "H5Fcreate");
  for (const char* const name : {"x", "y"}) {
    const std::vector<hsize_t> shape = {samples, 2};
    const int axes = *name == 'x' ? 2 : 1;
    const Handle space(H5Screate_simple(axes, shape.data(), nullptr), H5Sclose, "space");
    const Handle list(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "H5Pcreate");
    const std::vector<hsize_t> chunk = {std::min<hsize_t>(samples, 1024), 2};
    checkpoints::checked(H5Pset_chunk(list.id(), axes, chunk.data()), "H5Pset_chunk");
    const Handle set(H5Dcreate2(file.id(), name, H5T_STD_U8LE, space.id(), H5P_DEFAULT, list.id(), H5P_DEFAULT),
                     H5Dclose, "set");
  }
}

TEST_F(RowsTest, StatedSizesAreNotAllocated) {
  write_sparse(folder_ / "a.h5", hsize_t{1} << 50);
  EXPECT_NE(fault_here<DataError>({{"name", "hdf5"}, {"path", folder_ / "a.h5"}})
                .find("DIR/a.h5: variable 'y': states the shape [1125899906842624], more than a file of"),
            std::string::npos);
  write_sparse(folder_ / "b.h5", 4);
  EXPECT_EQ(open({{"name", "hdf5"}, {"path", folder_ / "b.h5"}, {"classes", "2"}}).train->size(), 4);
  EXPECT_EQ(fault_here<DataError>({{"name", "hdf5"}, {"path", folder_ / "b.h5"}, {"max_sample_mb", "0.000001"}}),
            "DIR/b.h5: variable 'x': a sample needs 9.537e-06 MiB of memory while it is read, more than "
            "data.max_sample_mb");
}

TEST_F(RowsTest, TheFormatMustFitTheName) {
  write_inputs();
  write_sparse(folder_ / "b.h5", 4);
  EXPECT_EQ(fault_here<DataError>({{"name", "hdf5"}, {"path", folder_ / "x.npy"}}),
            "DIR/x.npy: is a file of NumPy, not HDF5; set data.name = npy");
  EXPECT_EQ(fault_here<DataError>({{"path", folder_ / "b.h5"}}), "DIR/b.h5: is an HDF5 file; set data.name = hdf5");
}

}  // namespace rows_test
}  // namespace lockstep::data
