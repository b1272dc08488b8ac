// SPDX-License-Identifier: BSD-3-Clause
// Files that change while they are in use: an error names them, and no read ends the process.
#include "data/source/mapped_file.hpp"
#include "unit/data/image_files.hpp"

namespace lockstep::data {
namespace changed_files_test {

using Values = std::map<std::string, std::string>;

TEST(ChangedFilesTest, MissingBytesOfAMappedFileAreZeros) {
  const TemporaryFolder folder;
  folder.write("file", std::string(3 * 65536, 'x'));
  const MappedFile file(folder.path("file"));
  const MappedFile other(folder.path("file"));
  std::filesystem::resize_file(folder.path("file"), 65536);
  std::size_t count = 0;
  for (const std::uint8_t byte : file.bytes()) count += byte == 'x' ? 1 : 0;
  EXPECT_EQ(count, 65536U);
  EXPECT_NO_THROW(file.check(0, 65536));
  const std::string expected = folder.path("file") +
                               ": was changed while it was in use: it has 65536 bytes instead of 196608; restore the "
                               "file and resume the run";
  EXPECT_EQ(sentence_of<DataError>([&] { file.check(65535, 65537); }), expected);
  EXPECT_EQ(sentence_of<DataError>([&] { other.check(); }), expected);
  // The zeros of the first mapping stay.
  std::filesystem::resize_file(folder.path("file"), 3 * 65536);
  EXPECT_NO_THROW(other.check());
  EXPECT_THROW(file.check(), DataError);
}

/// A list of 600 images, which is longer than a page.
class ChangedListTest : public ::testing::Test {
 protected:
  ChangedListTest() {
    write_file(folder, "a image.ppm", ppm(4, 4, 1, 2, 3));
    for (int i = 0; i < 600; ++i) text += "a image.ppm " + std::to_string(i % 2) + "\n";
    folder.write("list.txt", text);
  }
  Splits opened(const Values& more = {}) const {
    Values values = {{"name", "list"}, {"path", folder.path("list.txt")}, {"transform", "to_float"}};
    for (const auto& [key, value] : more) values[key] = value;
    return open_with(values);
  }

  TemporaryFolder folder;
  std::string text;
};

TEST_F(ChangedListTest, AShorterOrOtherListIsAnError) {
  for (const std::string on_error : {"stop", "replace"}) {
    for (const std::size_t size : {std::size_t{0}, std::size_t{10}, text.size() / 2, text.size() - 1}) {
      folder.write("list.txt", text);
      const Splits splits = opened({{"on_error", on_error}});
      get(*splits.train, {0, 100});
      std::filesystem::resize_file(folder.path("list.txt"), size);
      for (const std::int64_t index : {0, 539}) {
        const std::string sentence = sentence_of<DataError>([&] { get(*splits.train, {index}); });
        EXPECT_NE(sentence.find(folder.path("list.txt") + ": was changed while it was in use"), std::string::npos)
            << sentence;
      }
    }
  }
  folder.write("list.txt", text);
  const Splits splits = opened();
  std::string other = text;
  other[12] = '1';
  folder.write("list.txt", other);
  const auto later = std::filesystem::file_time_type::clock::now() + std::chrono::hours(1);
  std::filesystem::last_write_time(folder.path("list.txt"), later);
  EXPECT_THROW(get(*splits.train, {5}), DataError);
}

TEST_F(ChangedListTest, AnotherTimeOrAReplacedFileIsAccepted) {
  const Splits splits = opened();
  const auto later = std::filesystem::file_time_type::clock::now() + std::chrono::hours(1);
  std::filesystem::last_write_time(folder.path("list.txt"), later);
  EXPECT_NO_THROW(get(*splits.train, {0, 539}));
  folder.write("new.txt", "b.ppm 0\n");
  std::filesystem::rename(folder.path("new.txt"), folder.path("list.txt"));
  EXPECT_NO_THROW(get(*splits.train, {0, 539}));
}

TEST(ChangedCifarTest, AMissingRecordOrAnotherLabelIsAnError) {
  const TemporaryFolder folder;
  std::string records;
  for (int i = 0; i < 20; ++i) records += static_cast<char>(i % 10) + std::string(3072, static_cast<char>(i));
  for (const char* name :
       {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"}) {
    folder.write(std::string(name) + ".bin", records);
  }
  const Values values = {{"name", "cifar10"}, {"path", folder.path()}, {"transform", "to_float"}};
  const std::string path = folder.path("data_batch_1.bin");
  const Splits splits = open_with(values);
  std::string other = records;
  other[5 * 3073] = 7;
  folder.write("data_batch_1.bin", other);
  EXPECT_EQ(values_of<std::int64_t>(get(*splits.train, {4, 6}).target()), (std::vector<std::int64_t>{4, 6}));
  const std::string label = sentence_of<DataError>([&] { get(*splits.train, {5}); });
  EXPECT_NE(label.find(path + ": was changed while it was in use: record 5 has the label 7 instead of 5"),
            std::string::npos)
      << label;
  std::filesystem::resize_file(path, 10 * 3073 + 100);
  EXPECT_NO_THROW(get(*splits.train, {9}));
  for (const std::int64_t index : {10, 19}) {
    const std::string cut = sentence_of<DataError>([&] { get(*splits.train, {index}); });
    EXPECT_NE(cut.find(path + ": was changed while it was in use: it has 30830 bytes instead of 61460"),
              std::string::npos)
        << cut;
  }
}

}  // namespace changed_files_test
}  // namespace lockstep::data
