// SPDX-License-Identifier: BSD-3-Clause
// What an evaluation leaves to be looked at: images of samples, and how often which class was taken for which.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <limits>

#include "engine/evaluation/evaluation_counts.hpp"
#include "engine/evaluation/sample_pictures.hpp"

namespace lockstep::engine {
namespace artifacts_test {

/// Says what the test wants to hear.
struct SayingModel : models::Model {
  explicit SayingModel(models::Predictions said) : said_(std::move(said)) {}
  models::Predictions predict(const at::Tensor&) const override { return said_; }

 private:
  models::Predictions said_;
};

std::vector<Picture> images_of(SamplePictures& pictures) {
  EventStorage events;
  events.keep_pictures(100);
  pictures.put_in(events);
  return events.take_images();
}

std::vector<Picture> images_of(const at::Tensor& input, const at::Tensor& target, const models::Predictions& said,
                               std::int64_t max = 100) {
  const SayingModel model(said);
  SamplePictures pictures(max);
  const batch::Batch batch{input, target};
  pictures.add({.is_training = false, .given = &batch, .batch = &batch, .outputs = input, .model = &model});
  return images_of(pictures);
}

using Pixels = std::vector<std::uint8_t>;

TEST(SamplePicturesTest, GoFromTheSmallestToTheLargestNumberOfEachSample) {
  const at::Tensor input = torch::tensor({{{{-1.0F, 0.0F}, {1.0F, 3.0F}}}, {{{5.0F, 5.0F}, {5.0F, 5.0F}}}});
  const std::vector<Picture> images = images_of(input, torch::tensor({7, 1}), {{"classes", torch::tensor({7, 2})}});
  ASSERT_EQ(images.size(), 2U);
  EXPECT_EQ(images[0].name, "sample_00");
  EXPECT_EQ(images[0].height, 2);
  EXPECT_EQ(images[0].width, 2);
  EXPECT_EQ(images[0].pixels, (Pixels{0, 0, 0, 64, 64, 64, 128, 128, 128, 255, 255, 255}));
  EXPECT_EQ(images[0].caption, "7");
  EXPECT_FALSE(images[0].is_wrong);
  EXPECT_EQ(images[1].pixels, Pixels(12, 0)) << "of one color";
  EXPECT_EQ(images[1].caption, "1, predicted as 2");
  EXPECT_TRUE(images[1].is_wrong);
}

// Maps of classes whose first axis is that of longitudes: north is up, and the masks are turned like the picture.
TEST(SamplePicturesTest, FieldsAndTheirMasksAreDrawnAsMaps) {
  const at::Tensor map = torch::tensor({{0.0F, 1.0F, 2.0F}, {3.0F, 4.0F, 5.0F}});  // the north west is first
  const at::Tensor classes = torch::tensor({{0, 1, 0}, {0, 0, 2}});
  const auto pixels = [](const at::Tensor& input, const at::Tensor& target, const MapView& view) {
    const SayingModel model({{"masks", target}});
    SamplePictures pictures(1, {}, view);
    const batch::Batch batch{input, target};
    pictures.add({.is_training = false, .given = &batch, .batch = &batch, .outputs = input, .model = &model});
    return images_of(pictures).at(0).pixels;
  };
  const auto alone = [](const at::Tensor& tensor) { return tensor.unsqueeze(0); };
  const FieldTask by_longitude = {.axes = {"lon", "lat"}, .coordinates = {{0, 1, 2}, {-10, 10}}};
  EXPECT_EQ(pixels(alone(map.flip(0).t().unsqueeze(0)), alone(classes.flip(0).t()), MapView(by_longitude)),
            pixels(alone(map.unsqueeze(0)), alone(classes), {}));
}

TEST(SamplePicturesTest, ThreeChannelsAreColorsAndOthersGray) {
  const at::Tensor rgb = torch::tensor({0.0F, 1.0F, 0.5F, 0.0F, 0.0F, 0.2F}).reshape({1, 3, 1, 2});
  const models::Predictions said{{"classes", torch::tensor({0})}};
  EXPECT_EQ(images_of(rgb, torch::tensor({0}), said)[0].pixels, (Pixels{0, 128, 0, 255, 0, 51}));
  const at::Tensor two = torch::tensor({0.0F, 1.0F, 9.0F, -9.0F}).reshape({1, 2, 1, 2});
  EXPECT_EQ(images_of(two, torch::tensor({0}), said)[0].pixels, (Pixels{0, 0, 0, 255, 255, 255}));
  const at::Tensor flat = torch::tensor({0.0F, 1.0F}).reshape({1, 1, 2});
  EXPECT_EQ(images_of(flat, torch::tensor({0}), said)[0].width, 2);
  const at::Tensor broken =
      torch::tensor({0.0F, 1.0F, std::numeric_limits<float>::quiet_NaN(), 0.0F}).reshape({1, 1, 2, 2});
  EXPECT_EQ(images_of(broken, torch::tensor({0}), said)[0].pixels[3], 255);
}

// Class 0 is black; 1 and 2 have the first two colors, in every picture.
TEST(SamplePicturesTest, MasksStandBesideThePicture) {
  const at::Tensor input = torch::tensor({0.0F, 1.0F}).reshape({1, 1, 2, 1});
  const at::Tensor masks = torch::tensor({2, 1}).reshape({1, 2, 1});
  const std::vector<Picture> images = images_of(input, torch::tensor({0}), {{"masks", masks}});
  ASSERT_EQ(images.size(), 1U);
  EXPECT_EQ(images[0].width, 1 + 2 + 1);
  EXPECT_EQ(images[0].caption, "");
  const Pixels first_row = {0, 0, 0, 255, 255, 255, 255, 255, 255, 49, 130, 206};
  const Pixels second_row = {255, 255, 255, 255, 255, 255, 255, 255, 255, 230, 97, 1};
  EXPECT_EQ(Pixels(images[0].pixels.begin(), images[0].pixels.begin() + 12), first_row);
  EXPECT_EQ(Pixels(images[0].pixels.begin() + 12, images[0].pixels.end()), second_row);
  const at::Tensor scores = torch::tensor({0.0F, 5.0F, 1.0F, 4.0F}).reshape({1, 2, 2, 1});  // scores of two classes
  EXPECT_EQ(images_of(input, torch::tensor({0}), {{"masks", scores}})[0].pixels[9], 230);
  const at::Tensor field = torch::tensor({2.0F, 1.0F}).reshape({1, 2, 1});
  const Picture gray = images_of(input, torch::tensor({0}), {{"masks", field}})[0];
  EXPECT_EQ(Pixels(gray.pixels.begin() + 9, gray.pixels.begin() + 12), Pixels(3, 255));
  EXPECT_EQ(Pixels(gray.pixels.begin() + 21, gray.pixels.end()), Pixels(3, 128));
}

// Image, target and prediction, from left to right. What does not count in the target is light gray.
TEST(SamplePicturesTest, TheTargetMaskStandsBetween) {
  const at::Tensor input = torch::zeros({2, 1, 1, 3});
  const at::Tensor target = torch::tensor({1, 255, 0, -100, 255, 255}).reshape({2, 1, 3});
  const at::Tensor masks = torch::tensor({1, 1, 2, 0, 0, 0}).reshape({2, 1, 3});
  const std::vector<Picture> images = images_of(input, target, {{"masks", masks}});
  ASSERT_EQ(images.size(), 2U);
  EXPECT_EQ(images[0].name, "mask_00");
  EXPECT_EQ(images[0].width, 3 * 3 + 2 * 2);
  EXPECT_EQ(Pixels(images[0].pixels.begin() + 15, images[0].pixels.begin() + 24),
            (Pixels{230, 97, 1, 224, 224, 224, 0, 0, 0}));
  EXPECT_EQ(Pixels(images[0].pixels.begin() + 30, images[0].pixels.end()),
            (Pixels{230, 97, 1, 230, 97, 1, 49, 130, 206}));
  EXPECT_EQ(images[0].caption, "50.0 % of the pixels are right");
  EXPECT_FALSE(images[0].is_wrong);
  EXPECT_EQ(images[1].caption, "") << "no pixel counts";
}

TEST(SamplePicturesTest, AreTheFirstOfTheirKindAndNoMoreThanAsked) {
  const at::Tensor input = torch::rand({2, 1, 3, 3});
  const SayingModel model({{"classes", torch::tensor({0, 1})}});
  SamplePictures pictures(3);
  for (int i = 0; i < 5; ++i) {
    const batch::Batch batch{input, torch::tensor({0, 1})};
    pictures.add({.is_training = false, .given = &batch, .batch = &batch, .outputs = input, .model = &model});
  }
  EXPECT_EQ(images_of(pictures).size(), 3U);
  EXPECT_EQ(images_of(torch::rand({2, 9}), torch::tensor({0, 1}), {}).size(), 0U) << "no picture";
  EXPECT_EQ(images_of(input, torch::tensor({0, 1}), {}, 0).size(), 0U);
  EXPECT_EQ(images_of(torch::rand({1, 3, 600, 300}), torch::tensor({0}), {}).at(0).height, 256);
}

TEST(SamplePicturesTest, KeepNoGraphAndAskForNone) {
  const at::Tensor input = torch::rand({1, 1, 2, 2}, torch::requires_grad());
  const std::vector<Picture> images = images_of(input, torch::tensor({1}), {{"classes", torch::tensor({1})}});
  EXPECT_EQ(images.size(), 1U);
  EXPECT_EQ(input.use_count(), 1U);
}

TEST(SamplePicturesTest, WhatGoesWrongDoesNotEndTheRun) {
  const at::Tensor input = torch::rand({2, 1, 2, 2});
  EXPECT_TRUE(images_of(input, torch::tensor({0, 1}), {{"masks", torch::rand({1})}}).empty());
}

void add(ConfusionCount& count, const at::Tensor& output, const at::Tensor& target) {
  const batch::Batch batch{output, target};
  count.add({.is_training = false, .given = &batch, .batch = &batch, .outputs = output});
}

TEST(ConfusionCountTest, CountsTargetsByRowsAndSkipsWhatIsIgnored) {
  ConfusionCount count(3);
  const at::Tensor scores =
      torch::tensor({{9.0F, 1.0F, 0.0F}, {0.0F, 1.0F, 5.0F}, {0.0F, 2.0F, 1.0F}, {3.0F, 2.0F, 1.0F}});
  add(count, scores, torch::tensor({0, 1, 1, -100}));
  add(count, scores.slice(0, 0, 1), torch::tensor({2}));
  const Table table = count.table().value();
  EXPECT_EQ(table.columns, 3U);
  EXPECT_EQ(table.values, (std::vector<double>{1, 0, 0, 0, 1, 1, 1, 0, 0}));
}

TEST(ConfusionCountTest, GivesNoTableOfOtherThings) {
  EXPECT_FALSE(ConfusionCount(0).table());
  for (const auto& [output, target] :
       std::vector<std::pair<at::Tensor, at::Tensor>>{{torch::rand({2, 3}), torch::rand({2, 3})},
                                                      {torch::rand({2, 3}), torch::rand({2})},
                                                      {torch::rand({2, 4}), torch::tensor({0, 1})},
                                                      {torch::rand({2, 3, 5}), torch::zeros({2, 5}, torch::kLong)}}) {
    ConfusionCount count(3);
    add(count, torch::eye(3), torch::tensor({0, 1, 2}));
    EXPECT_TRUE(count.table());
    add(count, output, target);
    EXPECT_FALSE(count.table());
  }
}

/// The first `count` samples from `first` on, as an evaluation shows them.
void add(PredictedValues& values, std::int64_t first, const at::Tensor& output, const at::Tensor& target) {
  batch::Batch batch{output, target};
  batch.set_draws(batch::draws_in_order(first, output.size(0)));
  values.add({.is_training = false, .given = &batch, .batch = &batch, .outputs = output});
}

TEST(PredictedValuesTest, KeepsTargetsAndPredictionsAtEvenDistances) {
  PredictedValues few(4);
  add(few, 0, torch::tensor({{1.0F, 2.0F}, {3.0F, 4.0F}}), torch::tensor({{1.5F, 2.5F}, {3.5F, 4.5F}}));
  add(few, 2, torch::tensor({{5.0F, 6.0F}}), torch::tensor({{5.0F, 6.5F}}));
  const Table table = few.table().value();
  EXPECT_EQ(table.name, "predicted");
  EXPECT_EQ(table.columns, 4U);
  EXPECT_EQ(table.values, (std::vector<double>{1.5, 1, 2.5, 2, 3.5, 3, 4.5, 4, 5, 5, 6.5, 6}));

  PredictedValues many(1001);  // every third one
  add(many, 7, torch::arange(7, 17).to(at::kFloat).unsqueeze(1), torch::arange(7, 17).to(at::kFloat));
  EXPECT_EQ(many.table().value().values, (std::vector<double>{9, 9, 12, 12, 15, 15}));
}

TEST(PredictedValuesTest, KeepsNothingOfOtherThings) {
  PredictedValues none(0);
  add(none, 0, torch::ones({2, 1}), torch::ones({2, 1}));
  EXPECT_FALSE(none.table());
  PredictedValues fields(4);
  add(fields, 0, torch::ones({2, 3, 4}), torch::ones({2, 3, 4}));
  add(fields, 0, torch::ones({2, 3}), torch::ones({2}));
  EXPECT_FALSE(fields.table());
}

}  // namespace artifacts_test
}  // namespace lockstep::engine
