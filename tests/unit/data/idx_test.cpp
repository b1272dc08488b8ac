// SPDX-License-Identifier: BSD-3-Clause
#include <zlib.h>

#include <functional>
#include <sys/stat.h>

#include "files.hpp"
#include "support/folders.hpp"

namespace lockstep::data {
namespace idx_test {

using Shape = std::vector<std::int64_t>;

std::string header(const Shape& shape, char type = 8) {
  std::string bytes = {0, 0, type, static_cast<char>(shape.size())};
  for (const std::int64_t size : shape) {
    for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(size >> shift);
  }
  return bytes;
}

// Elements counted up from `first`.
std::string idx(const Shape& shape, int first = 0) {
  std::string bytes = header(shape);
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  for (std::int64_t i = 0; i < count; ++i) bytes += static_cast<char>(first + i);
  return bytes;
}

std::string gzip(const std::string& bytes) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// Five training and two test images of 2 x 3 pixels, with labels 0, 1, 2, 3, 4 and 0, 1.
class IdxTest : public ::testing::Test {
 protected:
  IdxTest() {
    folder.write("train-images-idx3-ubyte", idx({5, 2, 3}));
    folder.write("train-labels-idx1-ubyte", idx({5}));
    folder.write("t10k-images-idx3-ubyte", idx({2, 2, 3}, 100));
    folder.write("t10k-labels-idx1-ubyte", idx({2}));
  }

  Splits open_folder(const std::string& classes = "10") const {
    return open_with({{"name", "idx"}, {"path", folder.path()}, {"classes", classes}});
  }
  std::string refusal() const {
    return sentence_of<DataError>([this] { open_folder(); });
  }
  /// The sentence when `name` holds `bytes` instead.
  std::string refusal_of(const std::string& name, const std::string& bytes) const {
    folder.write(name, bytes);
    return refusal();
  }
  std::string at(const std::string& name) const { return folder.path(name) + ": "; }
  void remove(const std::string& name) const { std::filesystem::remove(folder.path(name)); }

  TemporaryFolder folder;
};

void expect_the_usual_samples(const Splits& splits) {
  EXPECT_EQ(splits.train->size(), 5);
  EXPECT_EQ(splits.val->size(), 2);
  EXPECT_EQ(splits.train->task().sample_shape, (Shape{1, 2, 3}));
  EXPECT_EQ(splits.train->task().classes, 10);
  const batch::Batch batch = get(*splits.train, {4, 1});
  EXPECT_EQ(batch.input().sizes().vec(), (Shape{2, 1, 2, 3}));
  EXPECT_EQ(values_of<std::int64_t>(batch.target()), (Shape{4, 1}));
  const std::vector<float> pixels = values_of<float>(batch.input());
  for (std::size_t i = 0; i < 12; ++i) {
    const double byte = i < 6 ? 24 + static_cast<double>(i) : static_cast<double>(i);
    EXPECT_NEAR(pixels[i], (byte / 255 - 0.1307) / 0.3081, 1e-6);  // float rounding
  }
}

TEST_F(IdxTest, ReadsPlainFiles) { expect_the_usual_samples(open_folder()); }

TEST_F(IdxTest, ReadsCompressedFilesAndFilesOfSeveralMembers) {
  remove("train-images-idx3-ubyte");
  remove("train-labels-idx1-ubyte");
  const std::string images = idx({5, 2, 3});
  folder.write("train-images-idx3-ubyte.gz", gzip(images.substr(0, 21)) + gzip(images.substr(21)));
  folder.write("train-labels-idx1-ubyte.gz", gzip(idx({5})));
  expect_the_usual_samples(open_folder());
}

TEST_F(IdxTest, ReadsNamesWithADot) {
  for (const std::string stem : {"train-images", "train-labels", "t10k-images", "t10k-labels"}) {
    const std::string ending = stem.find("images") != std::string::npos ? "idx3-ubyte" : "idx1-ubyte";
    std::filesystem::rename(folder.path(stem + "-" + ending), folder.path(stem + "." + ending));
  }
  expect_the_usual_samples(open_folder());
}

TEST_F(IdxTest, AFourthDimensionHoldsChannels) {
  remove("train-images-idx3-ubyte");
  remove("t10k-images-idx3-ubyte");
  folder.write("train-images-idx4-ubyte", idx({5, 3, 2, 1}));
  folder.write("t10k-images-idx4-ubyte", idx({2, 3, 2, 1}));
  const Splits splits = open_folder();
  EXPECT_EQ(splits.train->task().sample_shape, (Shape{3, 2, 1}));
  EXPECT_EQ(get(*splits.val, {0}).input().sizes().vec(), (Shape{1, 3, 2, 1}));
}

TEST_F(IdxTest, TheDigestFollowsTheContent) {
  const std::uint64_t before = open_folder().train->digest();
  EXPECT_EQ(open_folder().train->digest(), before);
  EXPECT_NE(open_folder("11").train->digest(), before);
  EXPECT_NE(open_folder().val->digest(), before);
  folder.write("train-images-idx3-ubyte", idx({5, 2, 3}, 1));
  EXPECT_NE(open_folder().train->digest(), before);
}

TEST_F(IdxTest, AMissingFolderOrFileIsNamedWithItsKey) {
  const std::string missing = folder.path("nowhere");
  EXPECT_EQ(sentence_of<DataError>([&] {
              open_with({{"name", "idx"}, {"path", missing}});
            }),
            missing + ": is not a folder; data.path must be a folder of IDX files, such as train-images-idx3-ubyte");
  remove("t10k-labels-idx1-ubyte");
  EXPECT_EQ(refusal(),
            folder.path() +
                ": has no file t10k-labels-idx1-ubyte; data.path must be a folder with train-images-idx3-ubyte, "
                "train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, each plain or with .gz");
}

TEST_F(IdxTest, AFileThatIsAFolderCannotBeRead) {
  remove("train-labels-idx1-ubyte");
  std::filesystem::create_directory(folder.path("train-labels-idx1-ubyte"));
  EXPECT_EQ(refusal(), at("train-labels-idx1-ubyte") + "is not a regular file; check data.path");
}

TEST_F(IdxTest, RefusesAWrongHeader) {
  const std::string name = "train-images-idx3-ubyte";
  EXPECT_EQ(refusal_of(name, ""), at(name) + "is shorter than the header of an IDX file");
  EXPECT_EQ(refusal_of(name, idx({5, 2, 3}).substr(0, 15)), at(name) + "is shorter than the header of an IDX file");
  EXPECT_EQ(refusal_of(name, "PNG" + idx({5, 2, 3})),
            at(name) + "is not an IDX file: it does not start with two zero bytes");
  EXPECT_EQ(refusal_of(name, header({5, 2, 3}, 13)),
            at(name) + "contains elements of IDX type 13; only type 8, unsigned byte, is supported");
  EXPECT_EQ(refusal_of(name, header({5, 2, 3, 1, 1})), at(name) + "has 5 dimensions; 1 to 4 are supported");
  EXPECT_EQ(refusal_of(name, header({})), at(name) + "has 0 dimensions; 1 to 4 are supported");
  EXPECT_EQ(refusal_of(name, idx({0, 2, 3})), at(name) + "is empty: its shape is 0 x 2 x 3");
  EXPECT_EQ(refusal_of(name, idx({5, 6})), at(name) +
                                               "has 2 dimensions; images need three (number, height, width) or four "
                                               "(number, channels, height, width)");
  folder.write(name, idx({5, 2, 3}));
  EXPECT_EQ(refusal_of("train-labels-idx1-ubyte", idx({5, 1})),
            at("train-labels-idx1-ubyte") + "has 2 dimensions; labels need one");
}

TEST_F(IdxTest, RefusesAFileThatIsCutShort) {
  const std::string whole = idx({5, 2, 3});
  EXPECT_EQ(refusal_of("train-images-idx3-ubyte", whole.substr(0, whole.size() - 1)),
            at("train-images-idx3-ubyte") + "is truncated: its header states 5 x 2 x 3 bytes, but only 29 follow");
}

TEST_F(IdxTest, RefusesACompressedFileThatIsCutShortOrDamaged) {
  remove("train-images-idx3-ubyte");
  const std::string name = "train-images-idx3-ubyte.gz";
  const std::string whole = gzip(idx({5, 2, 3}));
  EXPECT_NE(refusal_of(name, whole.substr(0, whole.size() - 20)).find("is truncated: "), std::string::npos);
  EXPECT_EQ(refusal_of(name, whole.substr(0, whole.size() - 4)),
            at(name) + "is truncated: its compressed stream has no end");
  std::string damaged = whole;
  damaged[damaged.size() - 6] = static_cast<char>(damaged[damaged.size() - 6] ^ 1);  // a byte in the checksum
  EXPECT_EQ(refusal_of(name, damaged), at(name) + "cannot be read (incorrect data check)");
  folder.write(name, whole);
  open_folder();
}

TEST_F(IdxTest, RefusesAPromiseBeyondTheFileBeforeItAsksForMemory) {
  EXPECT_EQ(refusal_of("train-images-idx3-ubyte", header({4294967295, 4294967295, 4294967295})),
            at("train-images-idx3-ubyte") +
                "is truncated: its header states 4294967295 x 4294967295 x 4294967295 bytes, more than a compressed "
                "file of 16 bytes can hold");
  remove("train-images-idx3-ubyte");
  const std::string compressed = gzip(header({1000000, 1000, 1000}));
  EXPECT_EQ(refusal_of("train-images-idx3-ubyte.gz", compressed),
            at("train-images-idx3-ubyte.gz") +
                "is truncated: its header states 1000000 x 1000 x 1000 bytes, more than a compressed file of " +
                std::to_string(compressed.size()) + " bytes can hold");
}

TEST_F(IdxTest, RefusesBytesBehindTheEnd) {
  const std::string name = "t10k-images-idx3-ubyte";
  const std::string sentence = "is longer than its header states: there are data after the 2 x 2 x 3";
  EXPECT_EQ(refusal_of(name, idx({2, 2, 3}) + "x"), at(name) + sentence);
  remove(name);
  EXPECT_EQ(refusal_of(name + ".gz", gzip(idx({2, 2, 3}) + "x")), at(name + ".gz") + sentence);
}

TEST_F(IdxTest, DoesNotWaitForTheWriterOfAPipe) {
  const std::string path = folder.path("train-images-idx3-ubyte");
  std::filesystem::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(sentence_of<DataError>([this] { open_folder(); }), path + ": is not a regular file; check data.path");
}

TEST_F(IdxTest, RefusesImagesAndLabelsThatDoNotMatch) {
  EXPECT_EQ(
      refusal_of("train-labels-idx1-ubyte", idx({4})),
      at("train-labels-idx1-ubyte") + "has 4 labels, but " + folder.path("train-images-idx3-ubyte") + " has 5 images");
}

TEST_F(IdxTest, RefusesALabelBeyondTheClasses) {
  EXPECT_EQ(sentence_of<DataError>([this] { open_folder("3"); }),
            at("train-labels-idx1-ubyte") + "label 3 at index 3 is beyond data.classes = 3, with labels 0 to 2");
  open_folder("5");
}

TEST_F(IdxTest, RefusesSplitsOfDifferentShape) {
  EXPECT_EQ(refusal_of("t10k-images-idx3-ubyte", idx({2, 3, 2})),
            folder.path() +
                ": its training images are 1 x 2 x 3 (channels x height x width), but those of t10k are 1 x 3 x 2");
}

TEST(SampleDataTest, MnistIsRead) {
  const std::string path = testing::sample_data("mnist10k");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "there is no " << path;
  const Splits mnist = open_with({{"name", "idx"}, {"path", path}});
  EXPECT_EQ(mnist.train->size(), 8000);
  EXPECT_EQ(mnist.val->size(), 2000);
  EXPECT_EQ(mnist.train->task().sample_shape, (Shape{1, 28, 28}));
  std::vector<std::int64_t> all(8000);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);
  const batch::Batch batch = mnist.train->get(draws_of(all));
  EXPECT_NEAR(batch.input().mean().item<double>(), 0.0, 0.02);
  EXPECT_NEAR(batch.input().std().item<double>(), 1.0, 0.02);
}

}  // namespace idx_test
}  // namespace lockstep::data
