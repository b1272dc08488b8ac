// SPDX-License-Identifier: BSD-3-Clause
// Lists of images, and lists of folders in the cache.

#include <fstream>
#include <malloc.h>

#include "data/source/hash.hpp"
#include "data/stores/folder_listing.hpp"
#include "unit/data/image_sources.hpp"

namespace lockstep::data {
namespace image_lists_test {

using namespace image_sources;

TEST_F(FolderTest, AListCanHaveLinesThatEndInCr) {
  TemporaryFolder two;
  two_classes(two);
  two.write("list.txt",
            "\xEF\xBB\xBF"
            "a/1.ppm 0\rb/1.ppm 1\r");
  const Splits splits = open_with({{"name", "list"},
                                   {"path", two.path("list.txt")},
                                   {"val_fraction", "0"},
                                   {"cache", "off"},
                                   {"transform", "to_float"}});
  EXPECT_EQ(labels_of(*splits.train), (std::vector<std::int64_t>{0, 1}));
}

TEST_F(FolderTest, ListsAreCachedUntilAFolderChanges) {
  TemporaryFolder cache;
  settle(folder.path());
  const std::string root = folder.path("train");
  EXPECT_EQ(names_in(*stores(values({{"cache", cache.path()}, {"val_fraction", "0"}})).train).size(), 3U);
  ASSERT_EQ(cache.count(), 1U);
  const std::string list = std::filesystem::directory_iterator(cache.path())->path();
  const FolderList cached = cached_list(root, cache.path());
  EXPECT_EQ(cached.text.name(), list);
  EXPECT_EQ(cached.classes, (ImageNames{"a", "b"}));
  EXPECT_EQ(cached.passed_over, "1 files: readme.txt");
  EXPECT_EQ(cached_list(root, "").text.text(), cached.text.text());
  // It is a list, too.
  const ImageSplits listed = stores({{"name", "list"}, {"path", list}, {"val_fraction", "0"}});
  EXPECT_EQ(labels_in(*listed.train), (Labels{0, 1, 1}));
  EXPECT_EQ(listed.train->place(0), root + "/a/x.ppm");
  write_file(folder, "train/a/new.ppm", ppm(4, 4, 0, 0, 0));
  EXPECT_EQ(names_in(*stores(values({{"cache", cache.path()}, {"val_fraction", "0"}})).train).size(), 4U);
  // A folder that has just changed is not cached, and a damaged list is made again.
  EXPECT_EQ(cached_list(root, cache.path()).text.name(), root);
  settle(folder.path());
  EXPECT_EQ(cached_list(root, cache.path()).text.name(), list);
  std::filesystem::resize_file(list, std::filesystem::file_size(list) - 3);
  EXPECT_EQ(names_in(*stores(values({{"cache", cache.path()}, {"val_fraction", "0"}})).train).size(), 4U);
}

class ListTest : public ::testing::Test {
 protected:
  ListTest() {
    write_file(folder, "images/a b.ppm", ppm(4, 4, 1, 1, 1));
    write_file(folder, "images/c.ppm", ppm(4, 4, 2, 2, 2));
  }

  Values values(const std::string& text, const Values& more = {}) const {
    folder.write("train.txt", text);
    Values all = {{"name", "list"}, {"path", folder.path("train.txt")}, {"val_fraction", "0"}};
    for (const auto& [key, value] : more) all[key] = value;
    return all;
  }
  std::string fault(const std::string& text, const Values& more = {}) const {
    const std::string message = refusal(values(text, more));
    const std::string start = folder.path("train.txt") + ": ";
    EXPECT_TRUE(message.starts_with(start)) << message;
    return message.substr(std::min(start.size(), message.size()));
  }

  TemporaryFolder folder;
};

TEST_F(ListTest, TheLastBlankSeparates) {
  const std::string text = "\xEF\xBB\xBF# comment\r\n\r\nimages/a b.ppm 1\r\n\n  \nimages/c.ppm\t0";
  const ImageSplits splits = stores(values(text));
  EXPECT_EQ(names_in(*splits.train), (ImageNames{"images/a b.ppm", "images/c.ppm"}));
  EXPECT_EQ(labels_in(*splits.train), (Labels{1, 0}));
  EXPECT_EQ(splits.train->facts().classes, 2);
  EXPECT_EQ(splits.train->place(0), folder.path("images/a b.ppm"));
  EXPECT_EQ(stores(values("a b.ppm 0\n", {{"root", folder.path("images")}})).train->place(0),
            folder.path("images/a b.ppm"));
}

TEST_F(ListTest, FaultsStateTheLine) {
  EXPECT_EQ(fault("# only a comment\n"), "contains no samples; a list has lines of the form 'PATH LABEL'");
  EXPECT_EQ(fault("\nimages/c.ppm\n"),
            "line 2: 'images/c.ppm' has no label; write 'PATH LABEL', or set data.unlabeled = true");
  EXPECT_EQ(fault("images/c.ppm 0\nimages/c.ppm -1\n", {{"classes", "3"}}),
            "line 2: the label -1 is outside [0, 2] (data.classes = 3); correct the label");
  EXPECT_EQ(fault("images/c.ppm 0.5\n"),
            "line 1: the label '0.5' is not an integer; for real numbers, set data.target = real");
  EXPECT_EQ(fault(std::string("a\0b 1\n", 6)),
            "line 1: contains a zero byte, but a list is a text in UTF-8; convert the file");
}

TEST_F(ListTest, TargetsCanBeSetsNumbersOrMissing) {
  const Splits sets = open_with(values("images/a b.ppm 0,3\nimages/c.ppm -\n"));
  EXPECT_EQ(sets.train->task().kind, TaskKind::multilabel);
  EXPECT_EQ(values_of<float>(get(*sets.train, {0, 1}).target()), (std::vector<float>{1, 0, 0, 1, 0, 0, 0, 0}));
  const Splits numbers = open_with(values("images/a b.ppm 0.25\nimages/c.ppm -3e2\n", {{"target", "real"}}));
  EXPECT_EQ(numbers.train->task().kind, TaskKind::regression);
  EXPECT_EQ(values_of<float>(get(*numbers.train, {0, 1}).target()), (std::vector<float>{0.25F, -300}));
  const Splits bare = open_with(values("images/a b.ppm\nimages/c.ppm\n", {{"unlabeled", "true"}}));
  EXPECT_EQ(values_of<std::int64_t>(get(*bare.train, {0, 1}).target()), (Labels{kIgnored, kIgnored}));
  EXPECT_EQ(sample_name_of(*bare.train, 0), "images/a b.ppm");
}

TEST_F(ListTest, AnImageCanHaveSeveralNumbers) {
  const std::string text = "images/a b.ppm 0.25,-3e2,7\nimages/c.ppm 1,2,0.5\n";
  const Splits numbers = open_with(values(text, {{"target", "real"}}));
  EXPECT_EQ(numbers.train->task().kind, TaskKind::regression);
  EXPECT_EQ(numbers.train->task().classes, 3);
  const batch::Batch batch = get(*numbers.train, {1, 0});
  EXPECT_EQ(batch.target().sizes(), (Labels{2, 3}));
  EXPECT_EQ(values_of<float>(batch.target()), (std::vector<float>{1, 2, 0.5F, 0.25F, -300, 7}));

  EXPECT_EQ(fault("images/a b.ppm 1,2\n\nimages/c.ppm 1\n", {{"target", "real"}}),
            "line 3: the label has 1 number, but that of the first image has 2; each image needs as many");
  EXPECT_EQ(fault("images/a b.ppm 1,x\n", {{"target", "real"}}),
            "line 1: 'x' is not a finite number, which data.target = real requires; correct the label");
  folder.write("val.txt", "images/c.ppm 1,2\n");
  EXPECT_EQ(
      refusal(values(text, {{"target", "real"}, {"val_path", folder.path("val.txt")}})),
      folder.path("val.txt") + ": has 2 numbers per image, but the training part has 3; use the same kind of labels");
}

/// Anonymous and modified memory of this process in MB.
double private_mb() {
  std::ifstream file("/proc/self/smaps_rollup");
  double total = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("Private_Dirty:")) total += std::stod(line.substr(14)) / 1024;
  }
  return total;
}

/// Writes a list of a folder as cached_list does, with other lines.
void write_list(const std::string& path, const std::string& root, const std::string& rest) {
  char digest[17];
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(rest.data());
  std::snprintf(digest, sizeof(digest), "%016llx", static_cast<unsigned long long>(hash_of({bytes, rest.size()})));
  std::ofstream(path, std::ios::binary) << "# lockstep-list 2 " << root << " 2 0 " << digest << "\n" << rest;
}

// 1 M entries: within 1 s and with less than 40 MB of memory that ranks do not share.
TEST(LargeListTest, AMillionFilesOpenFromTheCache) {
  TemporaryFolder folder;
  TemporaryFolder cache;
  write_file(folder, "c/0.jpg", "");
  settle(folder.path());
  const std::string path = cached_list(folder.path(), cache.path()).text.name();
  std::string rest;  // a list of many files, as cached_list writes it
  {
    std::ifstream file(path);
    std::string first;
    std::getline(file, first);
    for (std::string line; std::getline(file, line) && line.starts_with("# ");) rest += line + "\n";
    for (int i = 0; i < 1000000; ++i) rest += "c/ILSVRC2012_val_" + std::to_string(100000000 + i) + ".JPEG 0\n";
    write_list(path, std::filesystem::canonical(folder.path()), rest);
    rest = std::string();
  }
  malloc_trim(0);  // or the memory of `rest` would be used again
  const double before_mb = private_mb();
  const auto begin = std::chrono::steady_clock::now();
  const ImageSplits splits = stores({{"name", "folder"}, {"path", folder.path()}, {"cache", cache.path()}});
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_EQ(splits.train->size() + splits.val->size(), 1000000);
  EXPECT_LT(private_mb() - before_mb, 40);
  EXPECT_LT(seconds, 1);
  std::printf("opened in %.3f s with %.1f MB\n", seconds, private_mb() - before_mb);
}

}  // namespace image_lists_test
}  // namespace lockstep::data
