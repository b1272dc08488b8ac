// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "data/image/geometry.hpp"
#include "data/image/resize.hpp"
#include "data/transforms/pipeline.hpp"
#include "data/transforms/presets.hpp"
#include "unit/data/jpeg_writer.hpp"

namespace lockstep::data {
namespace image_pipeline_test {

using testing::encode_jpeg;
using testing::test_image;
using Lines = std::vector<std::string>;

std::string fault(const PipelineOptions& options) {
  try {
    const Pipeline pipeline(options);
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

StoredImage stored(const Image& image) {
  return {.pixels = {image.pixels.begin(), image.pixels.size()}, .shape = {image.height, image.width, image.channels}};
}

std::vector<float> run(const Pipeline& pipeline, const StoredImage& image, const batch::Draw& draw) {
  Workspace workspace;
  const ImageSize size = pipeline.size(ImageSize{image.shape.height, image.shape.width}).value();
  std::vector<float> out(static_cast<std::size_t>(size.height * size.width * pipeline.channels()));
  pipeline.run(image, draw, out, workspace);
  return out;
}

TEST(ImagePipeline, LinesAreChecked) {
  const std::pair<Lines, std::string> cases[] = {
      {{"center_corp,size=3"}, "did you mean 'center_crop'"},
      {{"center_crop"}, "size is missing"},
      {{"center_crop,size=0"}, "center_crop,size=0"},
      {{"center_crop,size=1,2,3"}, "more than two numbers"},
      {{"center_crop,sise=3"}, "size"},
      {{"random_resized_crop,size=8,scale=0.5"}, "scale is not a range"},
      {{"random_resized_crop,size=8,scale=1,0.5"}, "scale is not a range"},
      {{"normalize", "horizontal_flip"}, "move the line before it"},
      {{"normalize,mean=0.5,0.5"}, "2 numbers"},
      {{"normalize,mean=auto"}, "mean=auto is not available"},
      {{"normalize,std=0"}, "std must be positive"},
      {{"multi_crop", "multi_crop"}, "only one line"},
      {{"multi_crop,crops=2,6,sizes=224"}, "do not match"},
      {{"rand_augment,timm=rand-m9-x3"}, "'x3' is unknown"},
      {{"rand_augment,timm=rand-n99"}, "n99"},
      {{"rand_augment,timm=rand-m9,ops=3"}, "cannot be combined with timm"},
      {{"rand_augment,magnitude=31"}, "less than bins"},
      {{"auto_augment,timm=v1"}, "not a policy of timm"},
      {{"gaussian_blur,kernel=4"}, "odd"},
      {{"color_jitter,hue=0.6"}, "hue"},
      {{"resize,size=256,max_size=200"}, "max_size is not larger"},
      {{"random_crop,size=8,padding=1,2,3"}, "padding"},
  };
  for (const auto& [lines, words] : cases) {
    const std::string message = fault({.lines = lines});
    EXPECT_NE(message.find(words), std::string::npos) << lines.back() << ": " << message;
    EXPECT_EQ(message.rfind("data.transform", 0), 0U) << message;
  }
}

TEST(ImagePipeline, EvaluationsRefuseRandomTransforms) {
  const std::string message = fault({.lines = {"horizontal_flip"}, .key = "data.val_transform", .is_training = false});
  EXPECT_NE(message.find("horizontal_flip is random"), std::string::npos) << message;
}

TEST(ImagePipeline, EveryPresetIsValid) {
  for (const Preset& preset : presets()) {
    const ExpandedPreset lines = preset.expand(224);
    const Pipeline train({.lines = lines.train});
    const Pipeline val({.lines = lines.val, .key = "data.val_transform", .is_training = false});
    EXPECT_TRUE(train.size().has_value()) << preset.name;
    EXPECT_EQ(val.size(ImageSize{32, 32}), (preset.name == "cifar" ? ImageSize{32, 32} : ImageSize{224, 224}));
  }
  const Lines timm = expand_preset("timm_a1", 224).val;
  EXPECT_EQ(timm.front(), "resize,size=236,filter=bicubic");
  EXPECT_EQ(expand_preset("torchvision2", 224).train.front(), "random_resized_crop,size=176");
  EXPECT_EQ(expand_preset("deit", 224).val.front(), "resize,size=256,filter=bicubic");
}

TEST(ImagePipeline, ADrawIsAPureFunctionOfEpochAndPosition) {
  const Image image = test_image(60, 80, 3);
  const Lines lines = {"random_resized_crop,size=24",
                       "horizontal_flip",
                       "color_jitter,brightness=0.4,hue=0.1",
                       "rand_augment",
                       "normalize",
                       "random_erasing,p=0.5,value=pixel"};
  const Pipeline pipeline({.lines = lines, .seed = 7});
  const auto result = run(pipeline, stored(image), {.index = 3, .epoch = 2, .position = 11});
  // Other samples before it, another index and another object make no difference.
  Workspace workspace;
  std::vector<float> out(result.size());
  for (std::int64_t position = 0; position < 12; ++position) {
    pipeline.run(stored(image), {.index = position, .epoch = 2, .position = position}, out, workspace);
  }
  EXPECT_EQ(out, result);
  EXPECT_EQ(run(Pipeline({.lines = lines, .seed = 7}), stored(image), {.index = 5, .epoch = 2, .position = 11}),
            result);
  EXPECT_NE(run(pipeline, stored(image), {.index = 3, .epoch = 1, .position = 11}), result);
  EXPECT_NE(run(pipeline, stored(image), {.index = 3, .epoch = 2, .position = 10}), result);
  EXPECT_NE(run(Pipeline({.lines = lines, .seed = 8}), stored(image), {.index = 3, .epoch = 2, .position = 11}),
            result);
}

TEST(ImagePipeline, ALineThatDoesNothingChangesNoPixel) {
  const Image image = test_image(60, 80, 3);
  const Lines lines = {"random_resized_crop,size=24", "color_jitter,brightness=0.4"};
  Lines longer = lines;
  longer.push_back("horizontal_flip,p=0");
  for (std::int64_t position = 0; position < 20; ++position) {
    const batch::Draw draw{.position = position};
    EXPECT_EQ(run(Pipeline({.lines = lines}), stored(image), draw),
              run(Pipeline({.lines = longer}), stored(image), draw));
  }
}

TEST(ImagePipeline, TheNumbersAreThoseOfTheKey) {
  // Line 1 is a flip: its coin is number (1 << 32) + 0.
  const Image image = test_image(8, 8, 3);
  const Pipeline pipeline({.lines = {"center_crop,size=8", "horizontal_flip,p=0.3"}, .seed = 5});
  Workspace workspace;
  for (std::int64_t position = 0; position < 50; ++position) {
    pipeline.run_pixels(stored(image), {.epoch = 4, .position = position}, workspace);
    const std::uint64_t bits =
        random::bits(5, random::Stream::augment, 4, static_cast<std::uint64_t>(position), std::uint64_t{1} << 32);
    const bool flips = static_cast<double>(bits >> 11) * 0x1p-53 < 0.3;
    EXPECT_EQ(pipeline.drawn_text(workspace), flips ? "horizontal_flip yes" : "");
  }
}

/// The largest distance between the distribution of numbers in [0, 1) and the uniform one, times sqrt(n).
double kolmogorov_smirnov(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  const auto n = static_cast<double>(numbers.size());
  double distance = 0;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    distance = std::max({distance, std::abs(numbers[i] - static_cast<double>(i) / n),
                         std::abs(numbers[i] - static_cast<double>(i + 1) / n)});
  }
  return distance * std::sqrt(n);
}

TEST(ImagePipeline, ParametersOfOneSampleAreUniformOverEpochs) {
  constexpr double kLimit = 1.95;  // exceeded with probability 0.001; the numbers are fixed by the seed
  const Image image = test_image(1, 1, 3);
  Image wide;
  wide.reshape({1000, 1000}, 3);
  const Pipeline crops({.lines = {"random_crop,size=1"}, .seed = 3});
  const Pipeline angles({.lines = {"rotate,degrees=10"}, .seed = 3});
  std::vector<double> tops;
  std::vector<double> lefts;
  std::vector<double> degrees;
  Workspace workspace;
  for (std::int64_t epoch = 0; epoch < 1000; ++epoch) {
    const batch::Draw draw{.index = 17, .epoch = epoch, .position = 17};
    crops.run_pixels(stored(wide), draw, workspace);
    tops.push_back((workspace.drawn[0].as<Box>().top + 0.5) / 1000);
    lefts.push_back((workspace.drawn[0].as<Box>().left + 0.5) / 1000);
    angles.run_pixels(stored(image), draw, workspace);
    degrees.push_back((workspace.drawn[0].as<double>() + 10) / 20);
  }
  EXPECT_LT(kolmogorov_smirnov(tops), kLimit);
  EXPECT_LT(kolmogorov_smirnov(lefts), kLimit);
  EXPECT_LT(kolmogorov_smirnov(degrees), kLimit);
}

TEST(ImagePipeline, FilesAndPixelsGiveTheSame) {
  const std::vector<std::byte> file = encode_jpeg(test_image(150, 200, 3), {.name = "420"});
  Workspace workspace;
  Image pixels;
  decode_image(file, read_image_header(file), {.decodes_only_the_part = false}, pixels, workspace);
  const Lines recipes[] = {{"random_resized_crop,size=64", "horizontal_flip", "normalize"},
                           {"random_crop,size=64", "vertical_flip"},
                           {"resize,size=80", "center_crop,size=64"},
                           {"resize,size=80,filter=bicubic", "random_crop,size=64", "horizontal_flip"},
                           {"random_crop,size=200,padding=30,mode=reflect", "resize,size=64"},
                           {"center_crop,size=220", "resize,size=64"}};
  for (const Lines& lines : recipes) {
    const Pipeline pipeline({.lines = lines});
    for (std::int64_t position = 0; position < 30; ++position) {
      const batch::Draw draw{.position = position};
      std::vector<float> from_file(3 * 64 * 64);
      pipeline.run({.file = file}, draw, from_file, workspace);
      ASSERT_EQ(from_file, run(pipeline, stored(pixels), draw)) << lines.front() << " " << position;
    }
  }
}

TEST(ImagePipeline, PartsGiveTheResultsOfWholeImages) {
  // The same steps without parts: each function on whole images.
  const Image image = test_image(150, 200, 3);
  const Pipeline pipeline(
      {.lines = {"random_resized_crop,size=64,48", "horizontal_flip", "vertical_flip", "center_crop,size=40"}});
  Workspace workspace;
  for (std::int64_t position = 0; position < 50; ++position) {
    pipeline.run_pixels(stored(image), {.position = position}, workspace);
    Image expected = image;
    Workspace other;
    crop(expected, workspace.drawn[0].as<Box>(), other.spare);
    resize(expected, {64, 48}, ResizeFilter::bilinear, other);
    if (workspace.drawn[1].as<bool>()) flip_horizontally(expected);
    if (workspace.drawn[2].as<bool>()) flip_vertically(expected);
    center_crop(expected, {40, 40}, {}, other.spare);
    ASSERT_TRUE(std::equal(expected.pixels.begin(), expected.pixels.end(), workspace.patch.image.pixels.begin(),
                           workspace.patch.image.pixels.end()))
        << position;
  }
}

TEST(ImagePipeline, FastDecodingKeepsTheShapeAndStaysClose) {
  const std::vector<std::byte> file = encode_jpeg(test_image(400, 600, 3), {.name = "420"});
  for (const Lines& lines : {Lines{"random_resized_crop,size=32"}, Lines{"resize,size=32", "center_crop,size=32"}}) {
    Workspace workspace;
    std::vector<float> exact(3 * 32 * 32);
    std::vector<float> fast(exact.size());
    const Pipeline exactly({.lines = lines});
    const Pipeline quickly({.lines = lines, .decodes_exactly = false});
    double difference = 0;
    for (std::int64_t position = 0; position < 10; ++position) {
      exactly.run({.file = file}, {.position = position}, exact, workspace);
      quickly.run({.file = file}, {.position = position}, fast, workspace);
      EXPECT_NE(exact, fast);
      for (std::size_t i = 0; i < fast.size(); ++i) difference += std::abs(exact[i] - fast[i]);
    }
    EXPECT_LT(difference / static_cast<double>(10 * fast.size()), 0.05);
  }
}

TEST(ImagePipeline, MultiCropDrawsEachCrop) {
  const Image image = test_image(90, 120, 3);
  const Pipeline pipeline({.lines = {"multi_crop,crops=2,3,sizes=32,16,scales=0.4,1,0.05,0.4", "horizontal_flip"}});
  ASSERT_EQ(pipeline.crops(), 5);
  std::vector<std::vector<float>> results;
  Workspace workspace;
  for (int crop = 0; crop < 5; ++crop) {
    const ImageSize size = pipeline.size(std::nullopt, crop).value();
    EXPECT_EQ(size.height, crop < 2 ? 32 : 16);
    results.emplace_back(static_cast<std::size_t>(3 * size.height * size.width));
    pipeline.run(stored(image), {}, results.back(), workspace, crop);
  }
  EXPECT_NE(results[0], results[1]);
  EXPECT_NE(results[2], results[3]);
}

TEST(ImagePipeline, SizesThatDoNotFitAreErrors) {
  const Image image = test_image(20, 30, 3);
  Workspace workspace;
  std::vector<float> out(3 * 24 * 24);
  const auto message = [&](const Lines& lines) -> std::string {
    try {
      Pipeline({.lines = lines}).run(stored(image), {}, out, workspace);
      return "";
    } catch (const DataError& error) {
      return error.what();
    }
  };
  EXPECT_NE(message({"random_crop,size=24"}).find("20 x 30"), std::string::npos);
  EXPECT_EQ(message({"random_crop,size=24,pad_if_needed=true"}), "");
  EXPECT_NE(message({"normalize"}).find("all images must have one size"), std::string::npos);
}

TEST(ImagePipeline, WithoutATensorLinePixelsBecomeFractions) {
  const Image image = test_image(4, 4, 1);
  const Pipeline pipeline({.lines = {}, .channels = 1});
  const auto out = run(pipeline, stored(image), {});
  for (std::size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], static_cast<float>(image.pixels[i]) / 255.0F);
  EXPECT_TRUE(pipeline.byte_table().has_value());
  EXPECT_FALSE(Pipeline({.lines = {"normalize", "random_erasing"}}).byte_table().has_value());
}

TEST(ImagePipeline, NormalizeAfterAnotherTensorLineGivesTheSameBits) {
  const Image image = test_image(8, 8, 3);
  EXPECT_EQ(run(Pipeline({.lines = {"to_float", "random_erasing,p=0", "normalize"}}), stored(image), {}),
            run(Pipeline({.lines = {"normalize"}}), stored(image), {}));
}

TEST(ImagePipeline, StatisticsReplaceAuto) {
  EXPECT_TRUE(needs_statistics({"center_crop,size=2", "normalize,mean=auto"}));
  EXPECT_FALSE(needs_statistics({"normalize"}));
  const Image image = test_image(3, 3, 3);
  const ChannelStatistics statistics{.mean = {0.5, 0.25, 0.125}, .std = {0.5, 0.25, 2}};
  EXPECT_EQ(run(Pipeline({.lines = {"normalize,mean=auto"}, .statistics = statistics}), stored(image), {}),
            run(Pipeline({.lines = {"normalize,mean=0.5,0.25,0.125,std=0.5,0.25,2"}}), stored(image), {}));
}

/// A transform of a user's program.
class Darken : public PixelTransform {
 public:
  explicit Darken(int by) : by_(by) {}
  Parameters draw(random::Sequence& random, ImageSize) const override { return static_cast<int>(random.below(2)); }
  void apply(Image& image, const Parameters& drawn, Workspace&) const override {
    for (std::uint8_t& byte : image.pixels) byte = static_cast<std::uint8_t>(byte / (drawn.as<int>() == 1 ? by_ : 1));
  }

 private:
  int by_;
};

TEST(ImagePipeline, AProgramAddsARow) {
  auto rows = builtin_transforms();
  rows.push_back({.name = "darken",
                  .help = "Divides all bytes",
                  .keys = {keys::integer("by", "2", "Divisor", 1, 255)},
                  .is_random = true,
                  .make = [](const Section& options, const TransformContext&) -> std::unique_ptr<Transform> {
                    return std::make_unique<Darken>(static_cast<int>(options.integer("by")));
                  }});
  const Pipeline pipeline({.lines = {"darken,by=4"}}, rows);
  Image image;
  image.reshape({1, 1}, 3);
  std::fill(image.pixels.begin(), image.pixels.end(), std::uint8_t{200});
  int darker = 0;
  for (std::int64_t position = 0; position < 100; ++position) {
    const float value = run(pipeline, stored(image), {.position = position})[0];
    darker += value == 50.0F / 255.0F;
    EXPECT_TRUE(value == 50.0F / 255.0F || value == 200.0F / 255.0F);
  }
  EXPECT_GT(darker, 30);
  EXPECT_LT(darker, 70);
}

}  // namespace image_pipeline_test
}  // namespace lockstep::data
