// SPDX-License-Identifier: BSD-3-Clause
// Folders of images: classes, names and parts.

#include "unit/data/image_sources.hpp"

namespace lockstep::data {
namespace image_folders_test {

using namespace image_sources;

TEST_F(FolderTest, SamplesAreSortedByClassFolderAndName) {
  write_file(folder, "train/b/c/1.ppm", ppm(4, 4, 0, 0, 0));
  write_file(folder, "train/b/c d/1.ppm", ppm(4, 4, 0, 0, 0));
  const ImageSplits splits = stores(values({{"val_fraction", "0"}}));
  EXPECT_EQ(names_in(*splits.train), (ImageNames{"a/x.ppm", "b/10.ppm", "b/2.ppm", "b/c/1.ppm", "b/c d/1.ppm"}));
  EXPECT_EQ(labels_in(*splits.train), (Labels{0, 1, 1, 1, 1}));
  EXPECT_EQ(splits.train->facts().class_names, (ImageNames{"a", "b"}));
  EXPECT_TRUE(has_note(splits.notes, "skipped 1 files: readme.txt"));
}

TEST_F(FolderTest, ValidationTakesTheFolderThatIsThere) {
  write_file(folder, "test/a/1.ppm", ppm(4, 4, 0, 0, 0));
  const ImageSplits with_test = stores(values());
  EXPECT_EQ(with_test.val, with_test.test);
  EXPECT_TRUE(has_note(with_test.notes, "test is used for validation"));
  EXPECT_TRUE(has_note(with_test.notes, "has no images of the classes b"));
  write_file(folder, "val/b/1.ppm", ppm(4, 4, 0, 0, 0));
  write_file(folder, "val/b/2.ppm", ppm(4, 4, 0, 0, 0));
  const ImageSplits with_val = stores(values());
  EXPECT_EQ(labels_in(*with_val.val), (Labels{1, 1}));
  EXPECT_EQ(labels_in(*with_val.test), (Labels{0}));
  const ImageSplits chosen = stores(values({{"val_path", folder.path("test")}}));
  EXPECT_EQ(chosen.val->size(), 1);
}

TEST_F(FolderTest, APartIsDividedByAKeyedPermutation) {
  for (int i = 0; i < 37; ++i) write_file(folder, "train/a/y" + std::to_string(i) + ".ppm", ppm(4, 4, 0, 0, 0));
  const ImageSplits splits = stores(values({{"val_fraction", "0.25"}}));
  EXPECT_EQ(splits.val->size(), 10);
  EXPECT_EQ(splits.train->size(), 30);
  std::set<std::string> all;
  for (const auto& store : {splits.train, splits.val}) {
    for (const std::string& name : names_in(*store)) all.insert(name);
  }
  EXPECT_EQ(all.size(), 40U);
  EXPECT_EQ(names_in(*stores(values({{"val_fraction", "0.25"}})).val), names_in(*splits.val));
  EXPECT_NE(names_in(*stores(values({{"val_fraction", "0.25"}, {"split_seed", "1"}})).val), names_in(*splits.val));
}

TEST_F(FolderTest, FaultsAreNamed) {
  EXPECT_EQ(refusal({{"name", "folder"}, {"path", folder.path("none")}}),
            folder.path("none") + ": is not a folder that can be read; check data.path");
  std::filesystem::create_directories(folder.path("train/empty"));
  EXPECT_NE(refusal(values()).find("the class 'empty' has no images"), std::string::npos);
  EXPECT_EQ(stores(values({{"allow_empty", "true"}, {"val_fraction", "0"}})).train->facts().classes, 3);
  write_file(folder, "val/new/1.ppm", ppm(4, 4, 0, 0, 0));
  EXPECT_NE(refusal(values({{"allow_empty", "true"}})).find("the class 'new' does not occur in the training part"),
            std::string::npos);
  write_file(folder, "train/a/scan.TIF", "");
  EXPECT_NE(refusal(values()).find("scan.TIF: TIFF images are not supported"), std::string::npos);
}

// A trained model knows its classes by the names of their folders, and shows them with other names.
TEST_F(FolderTest, NamesOfClassesDoNotChangeTheirOrder) {
  TemporaryFolder two;
  two.write("names.txt", "b\na\n");  // the names of the other folders
  const Section named = two_classes(two, {{"class_names", two.path("names.txt")}});
  const Task task = open(named).train->task();
  EXPECT_EQ(task.class_names, (ImageNames{"b", "a"}));
  EXPECT_EQ(task.class_ids, (ImageNames{"a", "b"}));
  std::filesystem::remove(two.path("names.txt"));
  const Splits evaluated =
      open(named, builtin_sources(),
           {.is_evaluation = true, .class_order = task.class_ids, .class_names = task.class_names});
  EXPECT_EQ(labels_of(*evaluated.train), (std::vector<std::int64_t>{0, 0, 1, 1}));
  EXPECT_EQ(evaluated.train->task().class_names, (ImageNames{"b", "a"}));
  const Splits reversed =
      open(named, builtin_sources(), {.is_evaluation = true, .class_order = {"b", "a"}, .class_names = {"x", "y"}});
  EXPECT_EQ(labels_of(*reversed.train), (std::vector<std::int64_t>{1, 1, 0, 0}));
}

// Published models can know the names of data.class_names instead of those of folders.
TEST_F(FolderTest, ClassesAreFoundByTheirOtherNames) {
  TemporaryFolder two;
  two.write("names.txt", "tench\nshark\n");
  const Section named = two_classes(two, {{"class_names", two.path("names.txt")}});
  const Splits splits = open(named, builtin_sources(), {.class_order = {"shark", "ray", "tench"}});
  EXPECT_EQ(labels_of(*splits.train), (std::vector<std::int64_t>{2, 2, 0, 0}));
  EXPECT_EQ(splits.train->task().class_names, (ImageNames{"shark", "ray", "tench"}));
  EXPECT_EQ(splits.train->task().class_ids, (ImageNames{"b", "ray", "a"}));
}

TEST_F(FolderTest, NamesThatAreNotUtf8StayDifferent) {
  TemporaryFolder three;
  for (const char* name : {"caf\xE8", "caf\xE9", "caf\\xE9"}) {
    write_file(three, std::string(name) + "/1.ppm", ppm(2, 2, 9, 8, 7));
  }
  const Section values = section(
      {{"name", "folder"}, {"path", three.path()}, {"cache", "off"}, {"val_fraction", "0"}, {"transform", "to_float"}});
  const Task task = open(values).train->task();
  EXPECT_EQ(task.class_names, (ImageNames{"caf\\x5CxE9", "caf\\xE8", "caf\\xE9"}));
  EXPECT_TRUE(task.class_ids.empty());
  const Splits again = open(values, builtin_sources(), {.is_evaluation = true, .class_order = task.class_names});
  EXPECT_EQ(labels_of(*again.train), (std::vector<std::int64_t>{0, 1, 2}));
}

TEST_F(FolderTest, HiddenFilesAndFoldersAreSkippedAndCounted) {
  TemporaryFolder two;
  const Section values = two_classes(two);
  for (const char* name : {"a/._1.ppm", "a/._2.tif", "b/.thumbs/3.ppm", "__MACOSX/a/._1.ppm", ".cache/x.ppm"}) {
    write_file(two, name, "no image");
  }
  const Splits splits = open(values);
  EXPECT_EQ(splits.train->size(), 4);
  EXPECT_EQ(splits.train->task().classes, 2);
  EXPECT_TRUE(has_note(splits.notes, two.path() + ": skipped 5 files: ._1.ppm, ._2.tif, .cache, ..."));
}

TEST_F(FolderTest, AFolderWithALineBreakInAClassIsSkipped) {
  TemporaryFolder two;
  const Section values = two_classes(two);
  write_file(two, "a/x 1\ny/3.ppm", ppm(2, 2, 9, 8, 7));
  const Splits splits = open(values);
  EXPECT_EQ(splits.train->size(), 4);
  EXPECT_TRUE(has_note(splits.notes, two.path() + ": skipped 1 files: x 1 y"));
}

TEST_F(FolderTest, ALineBreakInAnUnlabeledFolderIsSkippedInOneLine) {
  TemporaryFolder images;
  for (const char* name : {"a/1.ppm", "a/x 1\ny/2.ppm", "z\n/3.ppm"}) write_file(images, name, ppm(2, 2, 9, 8, 7));
  const ImageSplits splits = stores({{"name", "folder"}, {"path", images.path()}, {"unlabeled", "true"}});
  EXPECT_EQ(names_in(*splits.train), ImageNames({"a/1.ppm"}));
  EXPECT_TRUE(
      has_note(splits.notes, "skipped 2 files that are no images or have a line break in their names, such as x 1 y"));
}

// A list of these paths is made and read again, with and without a cache.
TEST_F(FolderTest, UnusualNamesAreRead) {
  const ImageNames names = {"#", " #x ", "-", "1 0", "\"q\"", "a\tb", "c\rd", "e\r", "\xE2\x80\xA8", "\\n", "'", "%0A"};
  TemporaryFolder root;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto blue = static_cast<int>(i);
    for (const std::string& path : {names[i] + "/1.ppm", names[i] + "/" + names[i] + "/" + names[i] + ".ppm"}) {
      write_file(root, path, ppm(1, 1, 0, 0, blue));
    }
  }
  settle(root.path());
  TemporaryFolder cache;
  for (const std::string& kept : {std::string("off"), cache.path(), cache.path()}) {
    const Splits splits = open_with(
        {{"name", "folder"}, {"path", root.path()}, {"cache", kept}, {"val_fraction", "0"}, {"transform", "to_float"}});
    ASSERT_EQ(splits.train->size(), std::ssize(names) * 2);
    for (std::int64_t i = 0; i < splits.train->size(); ++i) {
      const batch::Draw draw{.index = i};
      const batch::Batch batch = splits.train->get(std::span(&draw, 1));
      const auto label = static_cast<std::size_t>(values_of<std::int64_t>(batch.target()).front());
      const auto blue = std::llround(255 * values_of<float>(batch.input()).at(2));
      EXPECT_EQ(splits.train->task().class_names.at(label), names.at(static_cast<std::size_t>(blue)));
    }
  }
  EXPECT_EQ(cache.count(), 1U);
}

TEST_F(FolderTest, ATestFolderWithoutLabelsIsNotUsed) {
  TemporaryFolder root;
  for (const char* name : {"train/a/1.ppm", "train/b/1.ppm", "val/a/1.ppm", "test/unknown/1.ppm"}) {
    write_file(root, name, ppm(2, 2, 9, 8, 7));
  }
  const Splits splits =
      open_with({{"name", "folder"}, {"path", root.path()}, {"cache", "off"}, {"transform", "to_float"}});
  EXPECT_EQ(splits.train->size(), 2);
  EXPECT_EQ(splits.val->size(), 1);
  EXPECT_EQ(splits.test, nullptr);
  EXPECT_TRUE(has_note(splits.notes, "there is no test part: " + root.path("test/unknown") +
                                         ": the class 'unknown' does not occur in the training part; rename or "
                                         "remove the folder"));
}

TEST_F(FolderTest, SplitsThatAreNotUsedAreNotOpened) {
  TemporaryFolder root;
  for (const char* name : {"train/a/1.ppm", "train/b/1.ppm"}) write_file(root, name, ppm(2, 2, 9, 8, 7));
  for (const char* name : {"val/a/1.ppm", "test/b/1.ppm"}) write_file(root, name, "no image");
  const Section data = section({{"name", "folder"}, {"path", root.path()}, {"cache", "off"}, {"check", "full"}});
  const auto opened = [&data](const UsedSplits& used) {
    const Splits splits = open(data, builtin_sources(), {.used = used, .checks_images = true});
    return std::vector<bool>{splits.train != nullptr, splits.val != nullptr, splits.test != nullptr};
  };
  EXPECT_EQ(opened({.val = false, .test = false}), (std::vector<bool>{true, false, false}));
  EXPECT_THROW(opened({.val = true, .test = false}), DataError);
  EXPECT_THROW(opened({.val = false, .test = true}), DataError);
  EXPECT_EQ(open(data, builtin_sources(), {.used = {.val = false, .test = false}}).train->size(), 2)
      << "nothing is taken for the validation";
}

TEST_F(FolderTest, ATestFolderThatIsUsedForValidationIsOpenedForBoth) {
  TemporaryFolder root;
  for (const char* name : {"train/a/1.ppm", "train/b/1.ppm", "test/a/1.ppm"}) {
    write_file(root, name, ppm(2, 2, 9, 8, 7));
  }
  const Section data =
      section({{"name", "folder"}, {"path", root.path()}, {"cache", "off"}, {"transform", "to_float"}});
  EXPECT_EQ(open(data, builtin_sources(), {.used = {.val = true, .test = false}}).val->size(), 1);
  EXPECT_EQ(open(data, builtin_sources(), {.used = {.val = false, .test = true}}).test->size(), 1);
}

TEST_F(FolderTest, AByteOrderMarkAndLineEndsAreNoPartOfNames) {
  for (const char* text : {"\xEF\xBB\xBF"
                           "cat\r\ndog\r\n",
                           "cat\rdog\r", "cat\ndog"}) {
    TemporaryFolder two;
    two.write("names.txt", text);
    two.write("exclude.txt", std::string("\xEF\xBB\xBF"
                                         "a/2.ppm\r") +
                                 "b/1.ppm\r");
    const Splits splits =
        open(two_classes(two, {{"class_names", two.path("names.txt")}, {"exclude", two.path("exclude.txt")}}));
    EXPECT_EQ(splits.train->task().class_names, (ImageNames{"cat", "dog"}));
    EXPECT_EQ(splits.train->size(), 2);
  }
}

TEST_F(FolderTest, OneClassIsRefusedUnlessItIsEvaluated) {
  TemporaryFolder one;
  write_file(one, "train_images/1.ppm", ppm(2, 2, 0, 51, 10));
  const auto values = [&one](const std::string& unlabeled) {
    return section(
        {{"name", "folder"}, {"path", one.path()}, {"cache", "off"}, {"val_fraction", "0"}, {"unlabeled", unlabeled}});
  };
  EXPECT_EQ(sentence_of<DataError>([&] { open(values("false")); }),
            "the training data have only one class ('train_images'), so that there is nothing to learn; check "
            "data.path: it can be a folder too high or too low. For images without classes, set data.unlabeled=true");
  one.write("a.txt", std::string(100, 'a'));
  EXPECT_EQ(
      sentence_of<DataError>([&] {
        open(section({{"name", "text"}, {"path", one.path("a.txt")}, {"block", "4"}}));
      }),
      "the training data have only one class, so that there is nothing to learn; check the data and the number of "
      "classes of data.name = text");
  EXPECT_EQ(open(values("false"), builtin_sources(), {.is_evaluation = true}).train->size(), 1);
  EXPECT_EQ(open(values("true")).train->size(), 1);
}

std::string config_refusal(const Values& values) {
  return sentence_of<ConfigError>([&] { open_with(values); });
}

TEST_F(FolderTest, ClassNamesComeFromAFile) {
  folder.write("names.txt", "first\nsecond\n\n");
  EXPECT_EQ(open_with(values({{"class_names", folder.path("names.txt")}})).train->task().class_names,
            (ImageNames{"first", "second"}));
  folder.write("names.txt", "first\n");
  EXPECT_NE(refusal(values({{"class_names", folder.path("names.txt")}})).find("contains 1 class names"),
            std::string::npos);
  EXPECT_NE(config_refusal(values({{"classes", "1"}})).find("data.classes (command line) = 1, but the data have 2"),
            std::string::npos);
}

}  // namespace image_folders_test
}  // namespace lockstep::data
