// SPDX-License-Identifier: BSD-3-Clause
#include <fstream>
#include <malloc.h>
#include <thread>

#include "data/source/hash.hpp"
#include "data/source/settings.hpp"
#include "data/stores/folder_listing.hpp"
#include "data/stores/image_splits.hpp"
#include "unit/data/image_files.hpp"

namespace lockstep::data {
namespace image_sources_test {

using Names = std::vector<std::string>;
using Labels = std::vector<std::int64_t>;
using Values = std::map<std::string, std::string>;

ImageSplits stores(const Values& values) { return open_images(section(values)); }

std::string refusal(const Values& values) {
  return sentence_of<DataError>([&] { open_with(values); });
}

std::string config_refusal(const Values& values) {
  return sentence_of<ConfigError>([&] { open_with(values); });
}

bool has_note(const std::vector<std::string>& notes, const std::string& text) {
  return std::any_of(notes.begin(), notes.end(),
                     [&](const std::string& note) { return note.find(text) != std::string::npos; });
}

/// Two classes, b with two images and a with one, of 4 x 4 pixels.
class FolderTest : public ::testing::Test {
 protected:
  FolderTest() {
    write_file(folder, "train/b/2.ppm", ppm(4, 4, 20, 20, 20));
    write_file(folder, "train/b/10.ppm", ppm(4, 4, 10, 10, 10));
    write_file(folder, "train/a/x.ppm", ppm(4, 4, 255, 0, 51));
    write_file(folder, "train/readme.txt", "");
  }

  Values values(const Values& more = {}) const {
    Values all = {{"name", "folder"}, {"path", folder.path()}, {"cache", "off"}};
    for (const auto& [key, value] : more) all[key] = value;
    return all;
  }

  TemporaryFolder folder;
};

TEST_F(FolderTest, SamplesAreSortedByClassFolderAndName) {
  write_file(folder, "train/b/c/1.ppm", ppm(4, 4, 0, 0, 0));
  write_file(folder, "train/b/c d/1.ppm", ppm(4, 4, 0, 0, 0));
  const ImageSplits splits = stores(values({{"val_fraction", "0"}}));
  EXPECT_EQ(names_in(*splits.train), (Names{"a/x.ppm", "b/10.ppm", "b/2.ppm", "b/c/1.ppm", "b/c d/1.ppm"}));
  EXPECT_EQ(labels_in(*splits.train), (Labels{0, 1, 1, 1, 1}));
  EXPECT_EQ(splits.train->facts().class_names, (Names{"a", "b"}));
  EXPECT_TRUE(has_note(splits.notes, "skipped 1 files: readme.txt"));
}

TEST_F(FolderTest, ImagesBecomeTensors) {
  const Splits splits = open_with(values({{"transform", "to_float"}, {"val_fraction", "0"}}));
  EXPECT_EQ(splits.train->task().sample_shape, (Labels{3, 4, 4}));
  EXPECT_EQ(splits.train->task().classes, 2);
  EXPECT_EQ(splits.train->task().class_names, (Names{"a", "b"}));
  EXPECT_EQ(labels_of(*splits.train), (Labels{0, 1, 1}));
  EXPECT_EQ(sample_name_of(*splits.train, 0), "a/x.ppm");
  const batch::Batch batch = get(*splits.train, {0, 2});
  const std::vector<float> pixels = values_of<float>(batch.input());
  ASSERT_EQ(pixels.size(), 2U * 3 * 16);
  EXPECT_EQ(pixels[0], 1.0F);
  EXPECT_EQ(pixels[16], 0.0F);
  EXPECT_EQ(pixels[32], 0.2F);
  EXPECT_EQ(pixels[48], 20.0F / 255.0F);
  EXPECT_EQ(values_of<std::int64_t>(batch.target()), (Labels{0, 1}));
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

TEST_F(FolderTest, ImagesOfSeveralSizesNeedATransform) {
  write_file(folder, "train/b/3.ppm", ppm(8, 2, 0, 0, 0));
  const Splits splits = open_with(values({{"val_fraction", "0"}}));
  const std::string message = sentence_of<DataError>([&] { get(*splits.train, {3}); });
  EXPECT_NE(message.find("train/b/3.ppm: the transformed image has 2 x 8 pixels"), std::string::npos) << message;
  const Splits resized = open_with(values({{"val_fraction", "0"}, {"transform", "resize,size=2,2"}}));
  EXPECT_EQ(get(*resized.train, {0, 3}).input().numel(), 2 * 3 * 4);
}

/// Two classes of two images each.
Section two_classes(const TemporaryFolder& two, const std::map<std::string, std::string>& more = {}) {
  for (const char* name : {"a/1.ppm", "a/2.ppm", "b/1.ppm", "b/2.ppm"}) write_file(two, name, ppm(2, 2, 9, 8, 7));
  std::map<std::string, std::string> values = {
      {"name", "folder"}, {"path", two.path()}, {"cache", "off"}, {"val_fraction", "0"}, {"transform", "to_float"}};
  for (const auto& [key, value] : more) values[key] = value;
  return section(values);
}

// A trained model knows its classes by the names of their folders, and shows them with other names.
TEST_F(FolderTest, NamesOfClassesDoNotChangeTheirOrder) {
  TemporaryFolder two;
  two.write("names.txt", "b\na\n");  // the names of the other folders
  const Section named = two_classes(two, {{"class_names", two.path("names.txt")}});
  const Task task = open(named).train->task();
  EXPECT_EQ(task.class_names, (Names{"b", "a"}));
  EXPECT_EQ(task.class_ids, (Names{"a", "b"}));
  std::filesystem::remove(two.path("names.txt"));
  const Splits evaluated =
      open(named, builtin_sources(),
           {.is_evaluation = true, .class_order = task.class_ids, .class_names = task.class_names});
  EXPECT_EQ(labels_of(*evaluated.train), (std::vector<std::int64_t>{0, 0, 1, 1}));
  EXPECT_EQ(evaluated.train->task().class_names, (Names{"b", "a"}));
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
  EXPECT_EQ(splits.train->task().class_names, (Names{"shark", "ray", "tench"}));
  EXPECT_EQ(splits.train->task().class_ids, (Names{"b", "ray", "a"}));
}

TEST_F(FolderTest, NamesThatAreNotUtf8StayDifferent) {
  TemporaryFolder three;
  for (const char* name : {"caf\xE8", "caf\xE9", "caf\\xE9"}) {
    write_file(three, std::string(name) + "/1.ppm", ppm(2, 2, 9, 8, 7));
  }
  const Section values = section(
      {{"name", "folder"}, {"path", three.path()}, {"cache", "off"}, {"val_fraction", "0"}, {"transform", "to_float"}});
  const Task task = open(values).train->task();
  EXPECT_EQ(task.class_names, (Names{"caf\\x5CxE9", "caf\\xE8", "caf\\xE9"}));
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
  EXPECT_EQ(names_in(*splits.train), Names({"a/1.ppm"}));
  EXPECT_TRUE(has_note(splits.notes, "skipped 2 files that are no images, such as x 1 y"));
}

// A list of these paths is made and read again, with and without a cache.
TEST_F(FolderTest, UnusualNamesAreRead) {
  const Names names = {"#", " #x ", "-", "1 0", "\"q\"", "a\tb", "c\rd", "e\r", "\xE2\x80\xA8", "\\n", "'", "%0A"};
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

TEST(SourcesTest, NoSourceOpensAValidationPartThatIsNotUsed) {
  TemporaryFolder root;
  write_file(root, "t/train.bin", std::string(48, '\1'));
  write_file(root, "m/train-images-idx3-ubyte", std::string("\0\0\x8\3\0\0\0\2\0\0\0\1\0\0\0\1\7\7", 18));
  write_file(root, "m/train-labels-idx1-ubyte", std::string("\0\0\x8\1\0\0\0\2\0\1", 10));
  for (int i = 1; i <= 5; ++i) write_file(root, "c/data_batch_" + std::to_string(i) + ".bin", std::string(3073, '\1'));
  write_file(root, "l/x.ppm", ppm(2, 2, 9, 8, 7));
  write_file(root, "l/train.txt", "x.ppm 0\nx.ppm 1\n");
  write_file(root, "text.txt", "abababababab");
  const std::vector<Values> sources = {
      {{"name", "tokens"}, {"path", root.path("t")}, {"vocab_size", "300"}, {"block", "8"}},
      {{"name", "idx"}, {"path", root.path("m")}},
      {{"name", "idx"}, {"path", root.path("m")}, {"transform", "to_float"}},
      {{"name", "cifar10"}, {"path", root.path("c")}},
      {{"name", "list"}, {"path", root.path("l/train.txt")}, {"val_path", root.path("l/val.txt")}, {"cache", "off"}},
      {{"name", "text"}, {"path", root.path("text.txt")}, {"block", "8"}}};
  for (const Values& values : sources) {
    const Section data = section(values);
    EXPECT_THROW(open(data), DataError) << values.at("name");
    EXPECT_EQ(open(data, builtin_sources(), {.used = {.val = false, .test = false}}).val, nullptr) << values.at("name");
  }
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
    EXPECT_EQ(splits.train->task().class_names, (Names{"cat", "dog"}));
    EXPECT_EQ(splits.train->size(), 2);
  }
}

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

TEST_F(FolderTest, ImagesOfOtherSizesNameTheKey) {
  TemporaryFolder two;
  const Section values = two_classes(two);
  write_file(two, "b/2.ppm", ppm(3, 5, 9, 8, 7));
  EXPECT_EQ(sentence_of<DataError>([&] { get(*open(values).train, {3}); }),
            two.path("b/2.ppm") +
                ": the transformed image has 5 x 3 pixels (height x width), but 2 x 2 are required, "
                "because all images must have one size; add resize and center_crop to "
                "data.transform (command line), for example");
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

TEST_F(FolderTest, StatisticsAreMeasured) {
  TemporaryFolder two;
  write_file(two, "a/1.ppm", ppm(2, 2, 0, 51, 10));
  write_file(two, "b/2.ppm", ppm(2, 2, 255, 153, 20));
  const Splits splits = open_with({{"name", "folder"},
                                   {"path", two.path()},
                                   {"cache", "off"},
                                   {"val_fraction", "0"},
                                   {"transform", "normalize,mean=auto"}});
  const std::vector<float> first = values_of<float>(get(*splits.train, {0}).input());
  // Two equally frequent values are one standard deviation from their mean.
  for (const float value : first) EXPECT_FLOAT_EQ(value, -1.0F);
  EXPECT_TRUE(has_note(splits.notes, "normalize: mean=0.5,0.4,0.05882,std=0.5,0.2,0.01961 (measured)"));
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
  EXPECT_EQ(cached.classes, (Names{"a", "b"}));
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

TEST_F(FolderTest, BadImagesAreReplacedOrEndTheRun) {
  write_file(folder, "train/b/10.ppm", "P6 4 4 255\ncut");
  const Splits strict = open_with(values({{"val_fraction", "0"}}));
  const std::string message = sentence_of<DataError>([&] { get(*strict.train, {1}); });
  EXPECT_TRUE(message.starts_with(folder.path("train/b/10.ppm") + ": ")) << message;
  const Splits tolerant =
      open_with(values({{"val_fraction", "0"}, {"on_error", "replace"}, {"transform", "to_float"}}));
  const batch::Batch batch = get(*tolerant.train, {1});
  EXPECT_EQ(values_of<float>(batch.input()).front(), 20.0F / 255.0F);
  get(*tolerant.train, {1});
  const std::vector<BadSample> bad = tolerant.errors->take_new();
  ASSERT_EQ(bad.size(), 1U);
  EXPECT_EQ(bad[0].name, "b/10.ppm");
  EXPECT_EQ(bad[0].reason, message);
  // A deleted file; the last sample is replaced by the first.
  std::filesystem::remove(folder.path("train/b/2.ppm"));
  EXPECT_EQ(values_of<float>(get(*tolerant.train, {2}).input()).front(), 1.0F);
  const Splits limited = open_with(values({{"val_fraction", "0"}, {"on_error", "replace"}, {"max_errors", "0"}}));
  EXPECT_NE(sentence_of<DataError>([&] { get(*limited.train, {1}); }).find("more than data.max_errors = 0"),
            std::string::npos);
  write_file(folder, "bad.txt", "b/10.ppm\nb/2.ppm\n");
  EXPECT_EQ(names_in(*stores(values({{"val_fraction", "0"}, {"exclude", folder.path("bad.txt")}})).train),
            Names{"a/x.ppm"});
  EXPECT_NE(sentence_of<DataError>([&] {
              stores(values({{"exclude", folder.path("none.txt")}}));
            }).find("none.txt: cannot be opened (No such file or directory); check data.exclude"),
            std::string::npos);
}

TEST_F(FolderTest, CheckFindsBadImages) {
  write_file(folder, "train/b/2.ppm", "");
  const auto open_checked = [this](const Values& more) {
    open(section(values(more)), builtin_sources(), {.checks_images = true});
  };
  for (const char* check : {"quick", "full"}) {
    const std::string message = sentence_of<DataError>([&] {
      open_checked({{"check", check}, {"val_fraction", "0"}});
    });
    EXPECT_TRUE(message.starts_with(folder.path("train/b/2.ppm") + ": the file is empty")) << message;
  }
  EXPECT_NO_THROW(open_checked({{"check", "off"}, {"val_fraction", "0"}}));
}

TEST_F(FolderTest, ClassNamesComeFromAFile) {
  folder.write("names.txt", "first\nsecond\n\n");
  EXPECT_EQ(open_with(values({{"class_names", folder.path("names.txt")}})).train->task().class_names,
            (Names{"first", "second"}));
  folder.write("names.txt", "first\n");
  EXPECT_NE(refusal(values({{"class_names", folder.path("names.txt")}})).find("contains 1 class names"),
            std::string::npos);
  EXPECT_NE(config_refusal(values({{"classes", "1"}})).find("data.classes (command line) = 1, but the data have 2"),
            std::string::npos);
}

TEST_F(FolderTest, CropsAreNamedValues) {
  const Splits splits =
      open_with(values({{"val_fraction", "0"}, {"transform", "multi_crop,crops=1,2,sizes=4,2,scales=0.5,1,0.1,0.5"}}));
  const batch::Batch batch = get(*splits.train, {0, 1});
  EXPECT_EQ(batch.tensor("data").sizes(), (Labels{2, 3, 4, 4}));
  EXPECT_EQ(batch.tensor("crop1").sizes(), (Labels{2, 3, 2, 2}));
  EXPECT_EQ(batch.tensor("crop2").sizes(), (Labels{2, 3, 2, 2}));
}

TEST_F(FolderTest, SamplesDoNotDependOnTheThread) {
  const Splits splits = open_with(values({{"val_fraction", "0"}, {"transform", "random_crop,size=3,padding=2"}}));
  const std::vector<batch::Draw> draws = {{0, 0, 0}, {1, 0, 1}, {2, 0, 2}, {0, 1, 3}, {1, 5, 4}};
  const std::vector<float> together = values_of<float>(splits.train->get(draws).input());
  std::vector<std::vector<float>> apart(draws.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < draws.size(); ++i) {
      threads.emplace_back([&, i] { apart[i] = values_of<float>(splits.train->get(std::span(&draws[i], 1)).input()); });
    }
  }
  std::vector<float> joined;
  for (const auto& part : apart) joined.insert(joined.end(), part.begin(), part.end());
  EXPECT_EQ(joined, together);
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
  EXPECT_EQ(names_in(*splits.train), (Names{"images/a b.ppm", "images/c.ppm"}));
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

TEST(SyntheticSource, MakesImagesOfAnySize) {
  const Values values = {{"name", "synthetic"}, {"shape", "3,6,8"}, {"size", "40"}, {"transform", "to_float"}};
  const Splits splits = open_with(values);
  EXPECT_EQ(splits.train->size(), 40);
  EXPECT_EQ(splits.val->size(), 1000);
  EXPECT_EQ(splits.train->task().sample_shape, (Labels{3, 6, 8}));
  EXPECT_EQ(splits.train->task().classes, 10);
  const auto pixels = values_of<float>(get(*splits.train, {0, 1}).input());
  EXPECT_NE(std::vector<float>(pixels.begin(), pixels.begin() + 144),
            std::vector<float>(pixels.begin() + 144, pixels.end()));
  EXPECT_EQ(values_of<float>(get(*open_with(values).train, {0, 1}).input()), pixels);
  Values constant = values;
  constant["synthetic"] = "constant";
  const auto same = values_of<float>(get(*open_with(constant).train, {0, 1}).input());
  EXPECT_EQ(std::vector<float>(same.begin(), same.begin() + 144), std::vector<float>(same.begin() + 144, same.end()));
}

TEST(SyntheticSource, ValidationImagesAreOthers) {
  const Values values = {{"name", "synthetic"}, {"shape", "1,2,2"}, {"size", "12"}, {"transform", "to_float"}};
  Values more = values;
  more["size"] = "17";
  more["val_size"] = "3";
  const Splits splits = open_with(values);
  const auto numbers = [](const Dataset& dataset, std::int64_t i) {
    return values_of<float>(get(dataset, {i}).input());
  };
  EXPECT_NE(numbers(*splits.val, 0), numbers(*splits.train, 0));
  EXPECT_EQ(numbers(*splits.val, 4), numbers(*open_with(more).train, 16)) << "they follow the training images";
  EXPECT_EQ(labels_of(*open_with(more).val), (Labels{7, 8, 9}));
  more["val_fraction"] = "0.25";
  EXPECT_EQ(open_with(more).val->size(), 4) << "a part of the images, as in earlier versions";
  EXPECT_EQ(open_with(more).train->size(), 13);
}

// A Section throws std::logic_error for other keys.
TEST(DataSources, ARowDeclaresTheKeysThatItReads) {
  TemporaryFolder folder;
  for (const std::string name : {"a/1.ppm", "a/2.ppm", "b/1.ppm", "b/2.ppm"})
    write_file(folder, "images/" + name, ppm(4, 4, 1, 2, 3));
  folder.write("list.txt", "images/a/1.ppm 0\nimages/b/1.ppm 1\nimages/a/2.ppm 0\nimages/b/2.ppm 1\n");
  folder.write("text.txt", std::string(200, 'a') + std::string(200, 'b'));
  for (const std::string name : {"train.bin", "val.bin"}) write_file(folder, "tokens/" + name, std::string(2000, '\0'));
  const std::map<std::string, Values> values = {
      {"digits", {}},
      {"synthetic", {}},
      {"folder", {{"path", folder.path("images")}, {"cache", "off"}, {"val_fraction", "0.25"}}},
      {"list", {{"path", folder.path("list.txt")}, {"cache", "off"}, {"val_fraction", "0.25"}}},
      {"text", {{"path", folder.path("text.txt")}, {"block", "16"}}},
      {"tokens", {{"path", folder.path("tokens")}, {"vocab_size", "16"}, {"token_type", "uint16"}}}};
  for (const Source& row : builtin_sources()) {
    const auto set = values.find(row.name);
    if (set == values.end()) continue;  // tested with their files
    KeySpecs keys = DataSettings::keys(builtin_sources(), builtin_samplers());
    keys.insert(keys.end(), row.keys.begin(), row.keys.end());
    Section data = Section::with_defaults("data", keys);
    data.set("name", row.name, "test");
    for (const auto& [key, text] : set->second) data.set(key, text, "test");
    Splits splits;
    EXPECT_NO_THROW(splits = open(data)) << row.name;
    ASSERT_TRUE(splits.train && splits.val) << row.name;
    if (!data.has("check")) continue;
    EXPECT_NO_THROW(check_images(splits, data)) << row.name;
  }
}

TEST(CifarSource, PythonVersionIsRefused) {
  TemporaryFolder folder;
  folder.write("data_batch_1", "\x80\x02}q");
  EXPECT_NE(refusal({{"name", "cifar10"}, {"path", folder.path()}}).find("the Python version"), std::string::npos);
}

}  // namespace image_sources_test
}  // namespace lockstep::data
