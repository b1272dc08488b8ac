// SPDX-License-Identifier: BSD-3-Clause
// Images with masks: data.target = mask.
#include <lockstep/random/random.hpp>

#include <cmath>
#include <set>

#include "unit/data/image_files.hpp"
#include "unit/data/png_writer.hpp"

namespace lockstep::data {
namespace image_masks_test {

using Values = std::map<std::string, std::string>;
using Numbers = std::vector<std::int64_t>;

constexpr int kHeight = 13;
constexpr int kWidth = 17;

/// Random numbers below `limit`.
std::vector<std::uint8_t> random_numbers(int count, std::uint64_t limit, std::uint64_t key) {
  random::Sequence random(key, random::Stream::augment, 0);
  std::vector<std::uint8_t> numbers;
  for (int i = 0; i < count; ++i) numbers.push_back(static_cast<std::uint8_t>(random.below(limit)));
  return numbers;
}

std::string pgm(int width, const std::vector<std::uint8_t>& numbers) {
  return "P5 " + std::to_string(width) + " " + std::to_string(static_cast<int>(numbers.size()) / width) + " 255\n" +
         std::string(numbers.begin(), numbers.end());
}

/// Three pairs. Each image is gray and has the same numbers as its mask.
class MaskTest : public ::testing::Test {
 protected:
  MaskTest() {
    for (const int i : {0, 1, 2}) {
      const auto numbers = random_numbers(kHeight * kWidth, 20, static_cast<std::uint64_t>(i));
      write_file(folder, "images/" + std::to_string(i) + " x.pgm", pgm(kWidth, numbers));
      write_file(folder, "masks/" + std::to_string(i) + ".png", png_of_numbers(kWidth, numbers, 8, i == 1));
      folder.write("list.txt", folder.read("list.txt") + "images/" + std::to_string(i) + " x.pgm masks/" +
                                   std::to_string(i) + ".png\n");
    }
  }

  Values values(const Values& more = {}) const {
    Values all = {{"name", "list"},  {"path", folder.path("list.txt")}, {"target", "mask"}, {"val_fraction", "0"},
                  {"channels", "1"}, {"transform", "to_float"}};
    for (const auto& [key, value] : more) all[key] = value;
    return all;
  }
  /// All samples with these lines, drawn in an epoch.
  batch::Batch samples(const std::vector<std::string>& lines, std::int64_t epoch = 0) const {
    Section with_lines = section(values({{"transform", lines.front()}}));
    for (std::size_t i = 1; i < lines.size(); ++i) with_lines.set("transform", lines[i], "command line");
    std::vector<batch::Draw> draws;
    for (const std::int64_t i : {0, 1, 2}) draws.push_back({.index = i, .epoch = epoch, .position = i});
    return open(with_lines).train->get(draws);
  }

  TemporaryFolder folder;
};

/// The bytes of float images, where 255 stands for an ignored pixel.
Numbers bytes_in(const at::Tensor& images) {
  Numbers numbers;
  for (const float value : values_of<float>(images.contiguous())) {
    const auto byte = std::llround(255 * value);
    numbers.push_back(byte == 255 ? kIgnored : byte);
  }
  return numbers;
}

TEST_F(MaskTest, MasksAreTheClassesOfPixels) {
  const Splits splits = open_with(values());
  const Task task = splits.train->task();
  EXPECT_EQ(task.kind, TaskKind::segmentation);
  EXPECT_EQ(task.classes, 20);
  EXPECT_EQ(task.sample_shape, (Numbers{1, kHeight, kWidth}));
  const batch::Batch batch = samples({"to_float"});
  EXPECT_EQ(batch.target().sizes(), at::IntArrayRef({3, kHeight, kWidth}));
  EXPECT_EQ(values_of<std::int64_t>(batch.target()), bytes_in(batch.input()));
  EXPECT_EQ(open_with(values({{"classes", "21"}})).train->task().classes, 21);
}

// A gray image that equals its mask stays equal with nearest pixels and the fill 255. The transforms of images are
// compared with Pillow in the reference tests.
TEST_F(MaskTest, TransformsMoveImagesAndMasksTogether) {
  const std::vector<std::vector<std::string>> cases = {
      {"resize,size=29,11,filter=nearest"},
      {"resize,size=8,filter=nearest", "random_crop,size=8"},
      {"random_crop,size=12,16,padding=5,fill=255"},
      {"random_crop,size=40,pad_if_needed=true,fill=255"},
      {"random_crop,size=9,padding=3,mode=reflect"},
      {"random_resized_crop,size=10,7,filter=nearest", "horizontal_flip"},
      {"random_resized_crop,size=30,filter=nearest,scale=0.05,0.2", "vertical_flip"},
      {"rotate,degrees=180,fill=255"},
      {"affine,degrees=30,translate=0.3,scale=0.5,2,shear=20,fill=255"},
      {"affine,translate=0.5,fill=255", "center_crop,size=7,5"}};
  for (const auto& lines : cases) {
    std::set<Numbers> different;
    for (const std::int64_t epoch : {0, 1, 2, 3, 4, 5, 6, 7}) {
      const batch::Batch batch = samples(lines, epoch);
      const Numbers mask = values_of<std::int64_t>(batch.target().contiguous());
      EXPECT_EQ(mask, bytes_in(batch.input())) << lines.front();
      different.insert(mask);
    }
    EXPECT_TRUE(different.size() > 1 || lines.front().starts_with("resize,size=29")) << lines.front();
  }
}

// Programs that write masks can copy the metadata of the photograph.
TEST_F(MaskTest, MasksAreTurnedByTheirOwnMetadata) {
  const std::string exif("II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0", 22);
  std::string png = png_of_numbers(kWidth, random_numbers(kHeight * kWidth, 20, 7), 8, false);
  png.insert(8 + 25, png_chunk("eXIf", exif));
  for (const char* name : {"images/turned.png", "masks/turned.png"}) write_file(folder, name, png);
  folder.write("turned.txt", "images/turned.png masks/turned.png\n");
  const batch::Draw draw{.index = 0};
  const auto mask = [&](const std::string& exif_key) {
    const Splits splits = open_with(values({{"path", folder.path("turned.txt")}, {"exif", exif_key}}));
    const batch::Batch batch = splits.train->get(std::span(&draw, 1));
    EXPECT_EQ(values_of<std::int64_t>(batch.target()), bytes_in(batch.input())) << exif_key;
    return batch.target();
  };
  EXPECT_TRUE(at::equal(mask("apply"), mask("ignore").transpose(1, 2).flip(2)));
}

TEST_F(MaskTest, FiltersColorsAndErasedBoxesDoNotChangeMasks) {
  const auto masks = [&](const std::vector<std::string>& lines) {
    return values_of<std::int64_t>(samples(lines, 3).target().contiguous());
  };
  EXPECT_EQ(masks({"random_resized_crop,size=9,filter=bicubic", "rotate,degrees=40,filter=bilinear"}),
            masks({"random_resized_crop,size=9,filter=nearest", "rotate,degrees=40"}));
  EXPECT_EQ(masks({"color_jitter,brightness=0.5,contrast=0.5", "gaussian_blur,p=1", "invert,p=1", "equalize,p=1",
                   "posterize,p=1", "autocontrast,p=1", "solarize,p=1", "sharpness,p=1", "normalize,mean=0.5,std=0.5",
                   "random_erasing,p=1"}),
            masks({"to_float"}));
}

TEST_F(MaskTest, NewAreasAreIgnored) {
  const batch::Batch batch = samples({"center_crop,size=15,19"});
  const Numbers mask = values_of<std::int64_t>(batch.target().contiguous());
  const Numbers image = bytes_in(batch.input());
  int ignored = 0;
  for (std::size_t i = 0; i < mask.size(); ++i) {
    if (mask[i] != kIgnored) {
      EXPECT_EQ(mask[i], image[i]);
      continue;
    }
    EXPECT_EQ(image[i], 0);
    ++ignored;
  }
  EXPECT_EQ(ignored, 3 * (15 * 19 - kHeight * kWidth));
}

TEST_F(MaskTest, PalettesAndFewBitsAreTheStoredNumbers) {
  for (const int bits : {1, 2, 4, 8}) {
    for (const bool has_palette : {false, true}) {
      const auto numbers = random_numbers(kHeight * kWidth, std::min<std::uint64_t>(1U << bits, 200), 9);
      for (const char* name : {"masks/0.png", "masks/1.png", "masks/2.png"}) {
        write_file(folder, name, png_of_numbers(kWidth, numbers, bits, has_palette));
      }
      const Splits splits = open_with(values());
      const Numbers expected(numbers.begin(), numbers.end());
      EXPECT_EQ(values_of<std::int64_t>(get(*splits.train, {1}).target()), expected) << bits;
      EXPECT_EQ(splits.train->task().classes, 1 + *std::max_element(expected.begin(), expected.end()));
    }
  }
}

TEST_F(MaskTest, TabsSeparatePathsWithBlanks) {
  write_file(folder, "masks/of 0.pgm", pgm(kWidth, std::vector<std::uint8_t>(kHeight * kWidth, 255)));
  folder.write("list.txt", "images/0 x.pgm\tmasks/of 0.pgm\nimages/1 x.pgm\tmasks/1.png\n");
  const Splits splits = open_with(values({{"classes", "20"}}));
  EXPECT_EQ(values_of<std::int64_t>(get(*splits.train, {0}).target()), Numbers(kHeight * kWidth, kIgnored));
}

/// A list with one pair: an image and a mask of these numbers, repeated.
std::string list_of_values(const TemporaryFolder& folder, const std::vector<std::uint8_t>& numbers) {
  std::vector<std::uint8_t> mask;
  while (mask.size() < kHeight * kWidth) mask.insert(mask.end(), numbers.begin(), numbers.end());
  mask.resize(kHeight * kWidth);
  write_file(folder, "masks/values.pgm", pgm(kWidth, mask));
  folder.write("values.txt", "images/0 x.pgm\tmasks/values.pgm\n");
  return folder.path("values.txt");
}

TEST_F(MaskTest, OneClassIsRefused) {
  const auto refusal = [&](const std::vector<std::uint8_t>& numbers, Values more = {}) {
    more["path"] = list_of_values(folder, numbers);
    return sentence_of<DataError>([&] { open_with(values(more)); });
  };
  const std::string ignored =
      " and ignored pixels (255), so that there is nothing to learn; if 255 marks a class, set data.mask_values = ";
  EXPECT_EQ(refusal({0, 255}), "the masks contain only class 0" + ignored + "0,255");
  EXPECT_EQ(refusal({0, 255}, {{"classes", "2"}}), "the masks contain only class 0" + ignored + "0,255");
  EXPECT_EQ(refusal({7, 255}), "the masks contain only class 7" + ignored + "7,255");
  EXPECT_EQ(refusal({0}), "the masks contain only class 0, so that there is nothing to learn; check the masks");
  EXPECT_EQ(refusal({255}), "the masks contain no classes, only ignored pixels (255); check the masks");
}

TEST_F(MaskTest, AnEvaluationAcceptsOneClass) {
  const Section one = section(values({{"path", list_of_values(folder, {0, 255})}}));
  EXPECT_EQ(open(one, builtin_sources(), {.is_evaluation = true}).train->task().classes, 1);
}

TEST_F(MaskTest, MaskValuesNumberTheClasses) {
  const auto opened = [&](const std::vector<std::uint8_t>& numbers, const std::string& listed) {
    return open_with(values({{"path", list_of_values(folder, numbers)}, {"mask_values", listed}}));
  };
  const auto first_pixels = [](const Splits& splits) {
    Numbers numbers = values_of<std::int64_t>(get(*splits.train, {0}).target());
    numbers.resize(3);
    return numbers;
  };
  const Splits splits = opened({0, 255, 255}, "0,255");
  EXPECT_EQ(splits.train->task().classes, 2);
  EXPECT_EQ(first_pixels(splits), (Numbers{0, 1, 1}));
  const Splits with_ignored = opened({0, 128, 255}, "128,0");
  EXPECT_EQ(first_pixels(with_ignored), (Numbers{1, 0, kIgnored}));
  EXPECT_NE(with_ignored.train->digest(), opened({0, 128, 255}, "0,128").train->digest());
  EXPECT_EQ(sentence_of<DataError>([&] {
              get(*opened({0, 9, 255}, "0,255").train, {0});
            }),
            folder.path("masks/values.pgm") +
                ": the mask contains the value 9 in row 0, column 1, which data.mask_values does not list; correct "
                "the mask or add the value");
}

TEST_F(MaskTest, ValuesThatLeaveOutClassesAreNoted) {
  const Splits splits = open_with(values({{"path", list_of_values(folder, {0, 128, 255})}}));
  EXPECT_EQ(splits.notes.back(),
            "the masks contain the values 0, 128, 255: 127 of 129 classes do not occur; data.mask_values can number "
            "the values that occur");
  EXPECT_TRUE(open_with(values({{"path", list_of_values(folder, {0, 1, 255})}})).notes.empty());
}

TEST_F(MaskTest, FaultsNameTheMask) {
  const std::string path = folder.path("masks/1.png");
  const auto fault = [&](const std::string& bytes, const Values& more = {{"classes", "20"}}) {
    write_file(folder, "masks/1.png", bytes);
    std::string sentence = sentence_of<DataError>([&] { get(*open_with(values(more)).train, {1}); });
    EXPECT_TRUE(sentence.starts_with(path + ": ")) << sentence;
    return sentence.substr(std::min(sentence.size(), path.size() + 2));
  };
  const std::string good = png_of_numbers(kWidth, random_numbers(kHeight * kWidth, 20, 1), 8, false);
  EXPECT_EQ(fault(good, {{"classes", "3"}}).substr(0, 23), "the mask contains class");
  EXPECT_EQ(fault(png_of_numbers(4, random_numbers(20, 20, 1), 8, false)),
            "the mask has 5 x 4 pixels (height x width), but its image has 13 x 17; correct or exclude the pair");
  EXPECT_EQ(fault(ppm(kWidth, kHeight, 1, 1, 1)),
            "the mask is a PPM file with 3 channels of 8 bits, but masks are PNG or PGM files with one channel (gray "
            "or palette) of up to 8 bits; convert the file");
  EXPECT_NE(fault(good.substr(0, good.size() / 2)).find("the PNG data are damaged"), std::string::npos);
  EXPECT_NE(fault(good.substr(0, good.size() / 2), {}).find("the PNG data are damaged"), std::string::npos);
  EXPECT_NE(fault("").find("the file is empty"), std::string::npos);
  EXPECT_NE(fault("P2 1 1 255\n0").find("PNM (P2)"), std::string::npos);
}

TEST_F(MaskTest, ABadMaskIsReplacedWithItsImage) {
  write_file(folder, "masks/1.png", "P5 1 1 255\n0");
  const Splits splits = open_with(values({{"on_error", "replace"}}));
  const batch::Batch batch = get(*splits.train, {0, 1, 2});
  EXPECT_EQ(values_of<std::int64_t>(batch.target()), bytes_in(batch.input()));
  const auto bad = splits.errors->take_new();
  ASSERT_EQ(bad.size(), 1U);
  EXPECT_EQ(bad[0].name, "images/1 x.pgm");
  EXPECT_TRUE(bad[0].reason.starts_with(folder.path("masks/1.png") + ": ")) << bad[0].reason;
}

TEST_F(MaskTest, ReducedDecodingDoesNotMoveTheMask) {
  EXPECT_EQ(values_of<std::int64_t>(get(*open_with(values({{"decode", "fast"}})).train, {0}).target()),
            values_of<std::int64_t>(get(*open_with(values()).train, {0}).target()));
}

TEST_F(MaskTest, RefusedSettings) {
  const auto refusal = [&](const Values& more) { return sentence_of<ConfigError>([&] { open_with(values(more)); }); };
  for (const std::string name : {"trivial_augment_wide", "rand_augment", "auto_augment", "multi_crop"}) {
    EXPECT_EQ(refusal({{"transform", name}, {"classes", "20"}}),
              "data.transform (command line) '" + name + "': " + name +
                  " cannot be used with data.target = mask, because it does not transform masks; remove the line");
  }
  EXPECT_EQ(refusal({{"unlabeled", "true"}}),
            "data.unlabeled (command line) and data.target = mask contradict each other; remove one");
  EXPECT_EQ(refusal({{"classes", "256"}}),
            "data.classes (command line): masks have at most 255 classes, because 255 marks ignored pixels");
  EXPECT_EQ(sentence_of<DataError>([&] {
              labels_of(*open_with(values({{"classes", "20"}})).train);
            }),
            "the samples do not have one class each; choose another data.sampler");
  folder.write("list.txt", "images/0.pgm\n");
  EXPECT_EQ(sentence_of<DataError>([&] { open_with(values()); }),
            folder.path("list.txt") + ": line 1: 'images/0.pgm' has no mask; write 'PATH MASK'");
}

}  // namespace image_masks_test
}  // namespace lockstep::data
