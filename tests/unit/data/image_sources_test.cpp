// SPDX-License-Identifier: BSD-3-Clause
// Samples of sources of images, and what a source opens.

#include "unit/data/image_sources.hpp"

#include <thread>

#include "data/source/settings.hpp"

namespace lockstep::data {
namespace image_sources_test {

using namespace image_sources;

TEST_F(FolderTest, ImagesBecomeTensors) {
  const Splits splits = open_with(values({{"transform", "to_float"}, {"val_fraction", "0"}}));
  EXPECT_EQ(splits.train->task().sample_shape, (Labels{3, 4, 4}));
  EXPECT_EQ(splits.train->task().classes, 2);
  EXPECT_EQ(splits.train->task().class_names, (ImageNames{"a", "b"}));
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

TEST_F(FolderTest, ImagesOfSeveralSizesNeedATransform) {
  write_file(folder, "train/b/3.ppm", ppm(8, 2, 0, 0, 0));
  const Splits splits = open_with(values({{"val_fraction", "0"}}));
  const std::string message = sentence_of<DataError>([&] { get(*splits.train, {3}); });
  EXPECT_NE(message.find("train/b/3.ppm: the transformed image has 2 x 8 pixels"), std::string::npos) << message;
  const Splits resized = open_with(values({{"val_fraction", "0"}, {"transform", "resize,size=2,2"}}));
  EXPECT_EQ(get(*resized.train, {0, 3}).input().numel(), 2 * 3 * 4);
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
            ImageNames{"a/x.ppm"});
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
