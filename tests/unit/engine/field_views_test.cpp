// SPDX-License-Identifier: BSD-3-Clause
// What an evaluation of fields leaves to be looked at.
#include "engine/evaluation/field_views.hpp"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

#include "engine/evaluation/color_maps.hpp"
#include "support/sentence.hpp"

namespace lockstep::engine {
namespace field_views_test {

/// The lightness L* of CIE 1976, for the white point D65.
double lightness(const MapColor& color) {
  const auto linear = [](double value) {
    return value <= 0.04045 * 255 ? value / 255 / 12.92 : std::pow((value / 255 + 0.055) / 1.055, 2.4);
  };
  const double y = 0.2126 * linear(color[0]) + 0.7152 * linear(color[1]) + 0.0722 * linear(color[2]);
  return 116 * std::cbrt(y) - 16;
}

TEST(ColorMapTest, LightnessGrowsInEqualSteps) {
  const ColorMap map = sequential_map();
  const double step = (lightness(map.back()) - lightness(map.front())) / static_cast<double>(map.size() - 1);
  EXPECT_GT(step, 9);
  for (std::size_t i = 1; i < map.size(); ++i) EXPECT_NEAR(lightness(map[i]) - lightness(map[i - 1]), step, 0.3) << i;
}

TEST(ColorMapTest, ErrorsOfBothSignsAreEquallyDark) {
  const ColorMap map = diverging_map();
  const std::size_t middle = map.size() / 2;
  EXPECT_EQ(map[middle], (MapColor{243, 243, 243}));
  for (std::size_t i = 1; i <= middle; ++i) {
    EXPECT_NEAR(lightness(map[middle - i]), lightness(map[middle + i]), 0.3) << i;
    EXPECT_NEAR(lightness(map[middle - i + 1]) - lightness(map[middle - i]), 16.5, 0.3) << i;
    EXPECT_GT(map[middle - i][2], map[middle - i][0]) << "blue below 0";
    EXPECT_GT(map[middle + i][0], map[middle + i][2]) << "red above 0";
  }
}

TEST(ColorMapTest, ColorsBetweenTwoAreTheirMeans) {
  const std::vector<MapColor> two = {{0, 100, 200}, {100, 100, 0}};
  EXPECT_EQ(color_at(two, 0), two[0]);
  EXPECT_EQ(color_at(two, 0.25), (MapColor{25, 100, 150}));
  EXPECT_EQ(color_at(two, 1), two[1]);
  EXPECT_EQ(color_at(two, -3), two[0]);
  EXPECT_EQ(color_at(two, 3), two[1]);
  EXPECT_EQ(color_at(two, std::nan("")), kGapColor);
  EXPECT_EQ(texts_of(two), (std::vector<std::string>{"#0064c8", "#646400"}));
}

/// Fields of two channels, of which the newest inputs are the channels 3 and 2.
Task task_of(std::vector<std::int64_t> space, std::vector<std::vector<double>> coordinates = {}) {
  Task task{.sample_shape = {4}, .classes = 2, .kind = TaskKind::regression};
  task.sample_shape.insert(task.sample_shape.end(), space.begin(), space.end());
  task.fields = {.channels = {"u", "a/v"},
                 .units = {"m/s", ""},
                 .axes = std::vector<std::string>(space.size(), "x"),
                 .coordinates = std::move(coordinates),
                 .inputs = {"v@-1", "u@-1", "v", "u"},
                 .scaling = {.input_steps = 2, .input_channels = 2, .fed_back = {1, 0}}};
  return task;
}

struct Views {
  std::vector<Picture> pictures;
  std::vector<Table> tables;
};

class NoNames : public data::Dataset {
 public:
  std::int64_t size() const override { return 9; }
  Task task() const override { return {}; }
  batch::Batch get(std::span<const batch::Draw>) const override { return {}; }
  std::uint64_t digest() const override { return 0; }
};

/// The views of one batch.
Views views_of(const Task& task, const at::Tensor& input, const at::Tensor& target, const at::Tensor& output,
               const at::Tensor& mask = {}, const LogSettings& settings = {}) {
  FieldViews views(task, settings);
  batch::Batch batch{input, target};
  if (mask.defined()) batch.set("mask", mask);
  batch.set_draws(batch::draws_in_order(0, input.size(0)));
  views.add({.is_training = false, .given = &batch, .batch = &batch, .outputs = output});
  EventStorage events;
  events.keep_pictures(100);
  views.put_in(events, NoNames());
  return {events.take_images(), events.take_tables()};
}

using Pixels = std::vector<std::uint8_t>;

Pixels pixels_of(ColorMap map, const std::vector<double>& shares) {
  Pixels pixels;
  for (const double share : shares) {
    const MapColor color = color_at(map, share);
    pixels.insert(pixels.end(), color.begin(), color.end());
  }
  return pixels;
}

const Picture& named(const Views& views, const std::string& name) {
  const auto found = std::ranges::find(views.pictures, name, &Picture::name);
  if (found == views.pictures.end()) throw std::runtime_error("there is no picture " + name);
  return *found;
}

// The first row has the smaller latitude, so that it is the lower one in pictures.
TEST(FieldViewsTest, PicturesOfASampleShareAScaleAndGapsAreGray) {
  const Task task = task_of({2, 2}, {{-10, 10}, {0, 1}});
  const at::Tensor input = at::zeros({1, 4, 2, 2});
  input[0][3] = torch::tensor({{1.0F, 2.0F}, {3.0F, 4.0F}});
  const at::Tensor target = at::zeros({1, 2, 2, 2});
  target[0][0] = torch::tensor({{0.0F, 2.0F}, {4.0F, 0.0F}});
  const at::Tensor output = at::zeros({1, 2, 2, 2});
  output[0][0] = torch::tensor({{4.0F, 0.0F}, {3.0F, 100.0F}});
  const at::Tensor mask = at::ones({1, 2, 2, 2}, at::kBool);
  mask[0][0][1][1] = false;
  const Views views = views_of(task, input, target, output, mask);
  const double gap = std::nan("");
  const Picture& seen = named(views, "field_00_u_target");
  EXPECT_EQ(seen.pixels, pixels_of(sequential_map(), {1, gap, 0, 0.5})) << "the upper row is the second one";
  EXPECT_EQ(seen.height, 2);
  EXPECT_EQ(seen.width, 2);
  ASSERT_TRUE(seen.scale);
  EXPECT_EQ(seen.scale->group, "u [m/s], sample 0");
  EXPECT_EQ(seen.scale->low, 0);
  EXPECT_EQ(seen.scale->high, 4);
  EXPECT_EQ(seen.scale->unit, "m/s");
  EXPECT_EQ(seen.scale->colors, texts_of(sequential_map()));
  EXPECT_EQ(named(views, "field_00_u_input").pixels, pixels_of(sequential_map(), {0.75, gap, 0.25, 0.5}));
  EXPECT_EQ(named(views, "field_00_u_prediction").pixels, pixels_of(sequential_map(), {0.75, gap, 1, 0}));
  EXPECT_EQ(named(views, "field_00_u_input").scale->high, 4);
  const Picture& error = named(views, "field_00_u_error");
  EXPECT_EQ(error.scale->low, -4);
  EXPECT_EQ(error.scale->high, 4);
  EXPECT_EQ(error.pixels, pixels_of(diverging_map(), {0.375, gap, 1, 0.25}));
  EXPECT_EQ(Pixels(error.pixels.begin() + 3, error.pixels.begin() + 6), (Pixels{160, 160, 160}));
  EXPECT_EQ(named(views, "bias_u").pixels, error.pixels) << "of one sample";
  EXPECT_EQ(named(views, "rmse_u").pixels, pixels_of(sequential_map(), {0.25, gap, 1, 0.5}));
  EXPECT_EQ(named(views, "field_00_a.v_error").scale->group, "a/v, sample 0");
}

/// A task of maps, and the pixels of the target `map`, which is stored in the order of its axes.
Pixels pixels_of_target(const std::vector<std::string>& axes, const std::vector<std::vector<double>>& coordinates,
                        const at::Tensor& map, const std::vector<std::string>& units = {}) {
  Task task = task_of(map.sizes().vec(), coordinates);
  task.fields.axes = axes;
  task.fields.axis_units = units;
  std::vector<std::int64_t> shape = {1, 2};
  shape.insert(shape.end(), map.sizes().begin(), map.sizes().end());
  const at::Tensor target = at::zeros(shape);
  target[0][0] = map;
  shape[1] = 4;
  const Views views = views_of(task, at::zeros(shape), target, target.clone());
  const Picture& picture = named(views, "field_00_u_target");
  EXPECT_EQ(picture.height, 2);
  EXPECT_EQ(picture.width, 3);
  EXPECT_EQ(named(views, "bias_u").height, 2);
  EXPECT_EQ(named(views, "rmse_u").width, 3);
  return picture.pixels;
}

// North is up and east is right, however the file orders the axes and their points. The map has 2 latitudes and 3
// longitudes; the numbers of the northern row are 0, 1, 2, and those of the southern one 3, 4, 5.
TEST(FieldViewsTest, NorthIsUpAndEastIsRight) {
  const Pixels wanted = pixels_of(sequential_map(), {0, 0.2, 0.4, 0.6, 0.8, 1});
  const at::Tensor map = at::arange(6, at::kFloat).view({2, 3});
  const std::vector<double> north_first = {10, -10}, south_first = {-10, 10};
  const std::vector<double> eastward = {0, 1, 2}, westward = {2, 1, 0}, across_the_meridian = {358, 359, 0};
  EXPECT_EQ(pixels_of_target({"lat", "lon"}, {north_first, eastward}, map), wanted);
  EXPECT_EQ(pixels_of_target({"lat", "lon"}, {south_first, eastward}, map.flip(0)), wanted);
  EXPECT_EQ(pixels_of_target({"lon", "lat"}, {eastward, north_first}, map.t()), wanted);
  EXPECT_EQ(pixels_of_target({"longitude", "latitude"}, {eastward, south_first}, map.flip(0).t()), wanted);
  EXPECT_EQ(pixels_of_target({"Lon", "Lat"}, {westward, south_first}, map.flip({0, 1}).t()), wanted);
  EXPECT_EQ(pixels_of_target({"lon", "lat"}, {across_the_meridian, north_first}, map.t()), wanted);
  EXPECT_EQ(pixels_of_target({"a", "b"}, {eastward, north_first}, map.t(), {"degrees_east", "degree_N"}), wanted);
  EXPECT_EQ(pixels_of_target({"lon", "lat"}, {}, map.t()), wanted) << "north first if nothing is known";

  // Levels take the place that is left: the middle one of three is shown.
  const auto among_levels = [&](const at::Tensor& field, std::int64_t dim) {
    return at::stack({at::full_like(field, 9), field, at::full_like(field, 7)}, dim);
  };
  const std::vector<double> levels = {1, 2, 3};
  EXPECT_EQ(pixels_of_target({"lon", "level", "lat"}, {eastward, levels, north_first}, among_levels(map.t(), 1)),
            wanted);
  EXPECT_EQ(pixels_of_target({"lat", "lon", "level"}, {north_first, eastward, levels}, among_levels(map, 2)), wanted);
  // A section along a meridian is not turned, and one along a parallel has its longitudes along the width.
  EXPECT_EQ(pixels_of_target({"height", "lat"}, {{1, 0}, {-5, 0, 5}}, map), wanted);
  EXPECT_EQ(pixels_of_target({"lon", "height"}, {eastward, {0, 1}}, map.flip(0).t()), wanted);
}

TEST(FieldViewsTest, TheMiddleSliceOfThreeAxesIsShown) {
  const at::Tensor target = at::zeros({1, 2, 3, 1, 2});
  target[0][0][1] = torch::tensor({{0.0F, 8.0F}});
  const Views views = views_of(task_of({3, 1, 2}), at::zeros({1, 4, 3, 1, 2}), target, target.clone());
  EXPECT_EQ(named(views, "field_00_u_prediction").pixels, pixels_of(sequential_map(), {0, 1}));
  EXPECT_EQ(named(views, "field_00_u_error").pixels, pixels_of(diverging_map(), {0.5, 0.5}));
}

TEST(FieldViewsTest, LinesHaveErrorsAndSpectra) {
  const Task task = task_of({4}, {{0, 10, 20, 30}});
  const at::Tensor target = at::zeros({3, 2, 4});
  const at::Tensor output = at::zeros({3, 2, 4});
  for (std::int64_t i = 0; i < 3; ++i) output[i][0][1] = static_cast<double>(i);  // errors 0, 1 and 2
  target[0][0][2] = 5;
  output[0][0][2] = 5;
  const Views views = views_of(task, at::ones({3, 4, 4}), target, output, {}, {.fields = {"u"}, .field_samples = 1});
  EXPECT_TRUE(views.pictures.empty());
  ASSERT_EQ(views.tables.size(), 3U) << "one sample, errors and spectrum";
  const Table& sample = views.tables[0];
  EXPECT_EQ(sample.name, "field_00_u");
  EXPECT_EQ(sample.title, "u [m/s], sample 0");
  EXPECT_EQ(sample.names, (std::vector<std::string>{"x", "target", "prediction", "input"}));
  EXPECT_EQ(sample.values, (std::vector<double>{0, 0, 0, 1, 10, 0, 0, 1, 20, 5, 5, 1, 30, 0, 0, 1}));
  const Table& errors = views.tables[1];
  EXPECT_EQ(errors.title, "u [m/s], errors of 3 samples");
  EXPECT_EQ(std::vector<double>(errors.values.begin() + 3, errors.values.begin() + 5), (std::vector<double>{10, 1}));
  EXPECT_NEAR(errors.values[5], std::sqrt(5.0 / 3), 1e-6);
  // An impulse of height h among 4 points has the power (h / 4)^2 in each of 4 waves, two of which have k = 1.
  const Table& spectrum = views.tables[2];
  EXPECT_EQ(spectrum.names, (std::vector<std::string>{"wave number", "target", "prediction"}));
  ASSERT_EQ(spectrum.values.size(), 6U);
  EXPECT_NEAR(spectrum.values[1], 2 * 25.0 / 16 / 3, 1e-6);
  EXPECT_NEAR(spectrum.values[5], (25.0 + 1 + 4) / 16 / 3, 1e-6);
}

TEST(FieldViewsTest, WhatIsNoFieldIsLeftOut) {
  EXPECT_FALSE(FieldViews({.classes = 3}, {}).is_used());
  EXPECT_FALSE(FieldViews(task_of({2, 2}), {.field_samples = 0}).is_used());
  EXPECT_TRUE(
      views_of(task_of({2, 2}), at::ones({1, 4, 2, 2}), at::ones({1, 2, 2, 2}), at::ones({1, 2})).tables.empty());
  EXPECT_EQ(testing::sentence_of<ConfigError>([] {
              FieldViews(task_of({2, 2}), {.fields = {"u,w", "log.fields"}});
            }),
            "log.fields: the targets have no channel 'w'; their channels are u, a/v");
  EXPECT_EQ(testing::sentence_of<ConfigError>([] {
              FieldViews({.classes = 3}, {.fields = {"u", "log.fields"}});
            }),
            "log.fields: the targets are no fields; remove the key");
}

}  // namespace field_views_test
}  // namespace lockstep::engine
