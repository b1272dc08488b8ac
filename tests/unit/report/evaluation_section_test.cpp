// SPDX-License-Identifier: BSD-3-Clause
// Classes and images on the page of a run.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "folder.hpp"
#include "report/files/artifacts.hpp"
#include "report/files/image.hpp"
#include "report/page/curve_charts.hpp"
#include "report/page/run_page.hpp"

namespace lockstep::report {
namespace evaluation_section_test {

const std::string kMetrics =
    "{\"schema\":\"lockstep-metrics\",\"version\":1}\n{\"step\":10,\"loss\":2.5}\n{\"step\":20,\"loss\":1.5}\n";

std::size_t count_of(const std::string& text, const std::string& words) {
  std::size_t count = 0;
  for (std::size_t position = text.find(words); position != std::string::npos;
       position = text.find(words, position + 1))
    ++count;
  return count;
}

bool has(const std::string& text, const std::string& words) { return count_of(text, words) > 0; }

std::string page_with(const std::vector<Table>& tables, const std::vector<Base64Image>& pictures = {}) {
  const Folder folder;
  folder.write("metrics.jsonl", kMetrics);
  ArtifactsWriter writer(folder.path());
  for (const Table& table : tables) writer.put(table);
  for (const Base64Image& picture : pictures) writer.put(picture);
  writer.save();
  return run_page(folder.path());
}

Table table(const std::string& name, std::size_t columns, std::vector<double> values) {
  return {.name = "val/" + name, .step = 20, .columns = columns, .values = std::move(values)};
}

// Six of eight samples of class 0 are found, one of two of class 1; seven are taken for 0, three for 1.
TEST(TablesSectionTest, ShowsConfusionMistakesAndClasses) {
  const std::string page = page_with({table("confusion", 2, {6, 2, 1, 1}), table("iou", 2, {0.25, std::nan("")})});
  for (const char* words :
       {"Classes in the evaluation after step 20", "<title>Confusion matrix</title>",
        "<title>class 0, predicted as 1: 2 (25.0 %)</title>",
        "<tr><th>class</th><th>predicted as</th><th>samples</th><th>of the class</th></tr>",
        "<tr><th>0</th><td>1</td><td>2</td><td>25.0 %</td></tr>\n<tr><th>1</th><td>0</td><td>1</td><td>50.0 "
        "%</td></tr>",
        "<tr><th>class</th><th>samples</th><th>predicted</th><th>recall</th><th>precision</th><th>F1</th><th>iou</th></"
        "tr>",
        "<tr><th>0</th><td>8</td><td>7</td><td>0.750</td><td>0.857</td><td>0.800</td><td>0.25</td></tr>",
        "<tr><th>1</th><td>2</td><td>3</td><td>0.500</td><td>0.333</td><td>0.400</td><td>-</td></tr>"}) {
    EXPECT_TRUE(has(page, words)) << words;
  }
}

TEST(TablesSectionTest, AHundredClassesHaveAWideChartAndATableToBeOpened) {
  std::vector<double> counts(100 * 100);
  for (std::size_t i = 0; i < 100; ++i) counts[i * 100 + i] = 9;
  counts[3 * 100 + 77] = 1;
  const std::string page = page_with({table("confusion", 100, counts)});
  EXPECT_TRUE(has(page, "<div class=\"card wide\"><svg"));
  EXPECT_EQ(count_of(page, "predicted as 77: 1 (10.0 %)"), 1U);
  EXPECT_TRUE(has(page, "<summary>100 classes in numbers</summary>"));
  EXPECT_LT(page.size(), 60000U);
}

TEST(TablesSectionTest, TablesWithoutAMatrixAreShownToo) {
  const std::string page = page_with(
      {table("average_precision", 3, {0.5, 0.25, 1}), table("cmc", 2, {0.5, 1}), table("own", 2, {1, 2, 3, 4})});
  EXPECT_TRUE(has(page, "<tr><th>class</th><th>average_precision</th></tr>\n<tr><th>0</th><td>0.5</td></tr>")) << page;
  EXPECT_TRUE(has(page, "<title>Cumulative matching characteristic</title>"));
  EXPECT_TRUE(has(page, "<summary>val/own</summary>"));
  EXPECT_TRUE(has(page, "<tr><th>1</th><td>3</td><td>4</td></tr>"));
  EXPECT_FALSE(has(page, "Confusion"));
}

// A dot for each sample, and the line on which prediction and target are equal.
TEST(TablesSectionTest, RegressionsHaveAChartForEachOutput) {
  const std::string page = page_with({table("predicted", 4, {1, 1.5, -3, 0, 2, 2, -1, -2, 4, 3, 0, 1})});
  EXPECT_TRUE(has(page, "Evaluation after step 20"));
  EXPECT_TRUE(has(page, "<title>Predicted against true values of output 0</title>"));
  EXPECT_TRUE(has(page, "<title>Predicted against true values of output 1</title>"));
  EXPECT_EQ(count_of(page, "<circle"), 6U);
  EXPECT_EQ(count_of(page, ">equal<"), 2U);
  EXPECT_TRUE(has(page_with({table("predicted", 2, {1, 1.5})}), "<title>Predicted against true values</title>"));
}

TEST(PicturesSectionTest, ShowsPicturesWithCaptionsAndMarksWrongOnes) {
  const std::vector<std::uint8_t> pixels = {0, 0, 0, 9, 8, 7};
  const EncodedImage file = png_of({.height = 1, .width = 2, .pixels = pixels});
  const std::string png = base64_of(file.bytes);
  const auto picture = [&](const std::string& name, const std::string& caption, bool is_wrong) {
    return base64_image(
        {.name = name, .step = 20, .height = 1, .width = 2, .pixels = pixels, .caption = caption, .is_wrong = is_wrong},
        file);
  };
  const std::string page =
      page_with({}, {picture("val/sample_00", "7", false), picture("val/sample_01", "1, predicted as <9>", true)});
  EXPECT_EQ(count_of(page, "src=\"data:image/png;base64," + png + "\""), 2U);
  EXPECT_EQ(count_of(page, "src="), 2U) << "nothing comes from elsewhere";
  EXPECT_EQ(count_of(page, "<figure class=\"marked"), 1U);
  EXPECT_TRUE(has(page, "<figcaption>7</figcaption>"));
  EXPECT_TRUE(has(page, "\u2717 1, predicted as &lt;9&gt;</figcaption>"));
  EXPECT_TRUE(has(page, "After step 20, 1 of 2 classified incorrectly."));
  const std::string masks = page_with({}, {picture("val/mask_00", "93.1 % of the pixels are right", false)});
  EXPECT_TRUE(has(masks, "After step 20. From left to right: image, target mask, predicted mask."));
  EXPECT_TRUE(has(masks, "<figcaption>93.1 % of the pixels are right</figcaption>"));
}

Base64Image field_picture(const std::string& name, const std::string& group, const std::string& caption) {
  return {.name = "val/" + name,
          .step = 20,
          .caption = caption,
          .height = 2,
          .width = 3,
          .png = "QUJD",
          .scale = ColorScale{.group = group, .low = -2, .high = 3.5, .unit = "K", .colors = {"#000001", "#0000ff"}}};
}

TEST(FieldsSectionTest, PicturesHaveTheirColorsWithValuesAndUnit) {
  const std::string page =
      page_with({}, {field_picture("a", "t2m <1>", "target"), field_picture("b", "t2m <1>", "prediction"),
                     field_picture("c", "u", "target")});
  for (const char* words :
       {"Fields after step 20", "Gray points have no value", "<p>t2m &lt;1&gt;</p>", "<p>u</p>",
        "<figcaption>prediction [K]</figcaption><img class=\"coarse\" alt=\"t2m &lt;1&gt;: prediction\" width=\"3\" "
        "height=\"2\" src=\"data:image/png;base64,QUJD\"/>",
        "<div class=\"bar\" style=\"background:linear-gradient(to right,#000001,#0000ff)\"></div>",
        "<div class=\"scale\"><span>-2</span><span>0.75</span><span>3.5</span></div>"}) {
    EXPECT_TRUE(has(page, words)) << words;
  }
  EXPECT_EQ(count_of(page, "<div class=\"field\">"), 2U) << "one row for each group";
  EXPECT_EQ(count_of(page, "<img "), 3U);
  EXPECT_FALSE(has(page, "Samples with predictions"));
}

TEST(FieldsSectionTest, TablesWithATitleAreCharts) {
  Table lines = table("field_00_u", 3, {0, 1, 2, 10, 3, 4, 20, 5, 6});
  lines.names = {"lon", "target", "prediction"};
  lines.title = "u [m/s], sample 0";
  Table spectrum = table("spectrum_u", 2, {1, 100, 2, 10, 4, 1});
  spectrum.names = {"wave number", "target"};
  spectrum.title = "power of u";
  const std::string page = page_with({lines, spectrum});
  for (const char* words :
       {"<title>u [m/s], sample 0</title>", ">lon</text>", ">target</text>", "<title>power of u</title>"}) {
    EXPECT_TRUE(has(page, words)) << words;
  }
  EXPECT_FALSE(has(page, "<summary>val/field_00_u</summary>"));
  EXPECT_FALSE(has(page_with({}), "Fields after step"));
}

TEST(RolloutsTest, MetricsOfStepsAreOneChartWithPersistence) {
  const Folder folder;
  std::string record = "{\"step\":20,\"val/rmse/t2m\":9";
  for (int step = 1; step <= 12; ++step) {
    record += ",\"val/rmse@" + std::to_string(step) + "/t2m\":" + std::to_string(step) + ",\"val/persistence_rmse@" +
              std::to_string(step) + "/t2m\":" + std::to_string(3 * step);
  }
  folder.write("metrics.jsonl", kMetrics + record + "}\n");
  const std::string page = run_page(folder.path());
  EXPECT_TRUE(has(page, "Errors over the predicted steps"));
  EXPECT_EQ(count_of(page, "<title>t2m: rmse</title>"), 1U);
  EXPECT_TRUE(has(page, ">model</text>"));
  EXPECT_TRUE(has(page, ">persistence</text>"));
  EXPECT_TRUE(has(page, "<title>val/rmse/t2m</title>"));
  EXPECT_FALSE(has(page, "<title>val/rmse@3/t2m</title>"));
  EXPECT_FALSE(has(page_with({}), "Errors over the predicted steps"));
}

// The curves of one run: the first step of a target of three has no number in its name.
TEST(RolloutsTest, TheFirstStepOfATargetBeginsItsCurve) {
  PageData run;
  for (const auto& [name, value] : std::vector<std::pair<std::string, double>>{
           {"val/rmse/t2m", 1}, {"val/rmse/u", 5}, {"val/rmse@2/t2m", 2}, {"val/rmse@3/t2m", 4}}) {
    run.curves.push_back({.name = name, .points = {{10, 9}, {20, value}}});
  }
  const std::vector<plot::LineChart> charts = rollout_charts({&run}, {"a"});
  ASSERT_EQ(charts.size(), 1U);
  ASSERT_EQ(charts[0].series.size(), 1U);
  std::vector<std::pair<double, double>> points;
  for (const plot::Point& point : charts[0].series[0].points) points.emplace_back(point.x, point.y);
  EXPECT_EQ(points, (std::vector<std::pair<double, double>>{{1, 1}, {2, 2}, {3, 4}}));

  run.curves.insert(run.curves.begin(), {.name = "val/rmse@1/t2m", .points = {{20, 3}}});
  const std::vector<plot::LineChart> rolled_out = rollout_charts({&run}, {"a"});
  ASSERT_EQ(rolled_out.at(0).series.at(0).points.size(), 3U);
  EXPECT_EQ(rolled_out[0].series[0].points[0].y, 3);
}

std::vector<std::string> y_labels(const std::vector<plot::LineChart>& charts) {
  std::vector<std::string> labels;
  for (const plot::LineChart& chart : charts) labels.push_back(chart.y_label);
  return labels;
}

TEST(RolloutsTest, AxesHaveUnitsThatAllRunsAgreeOn) {
  PageData one;
  for (const char* name : {"val/rmse/t2m", "val/rmse@1/t2m", "val/persistence_rmse@1/t2m", "val/rmse@1/u"}) {
    one.curves.push_back({.name = name, .points = {{20, 1}}});
  }
  EXPECT_EQ(y_labels(rollout_charts({&one}, {"a"})), (std::vector<std::string>{"rmse", "rmse"})) << "nothing is known";
  one.artifacts.units = {{"val/rmse/t2m", "K"}, {"val/rmse@1/t2m", "K"}, {"val/persistence_rmse@1/t2m", "K"}};
  EXPECT_EQ(y_labels(rollout_charts({&one}, {"a"})), (std::vector<std::string>{"rmse [K]", "rmse"}));
  EXPECT_EQ(y_labels(curve_charts({&one}, {"a"})), std::vector<std::string>{"val/rmse/t2m [K]"});

  PageData other = one;
  EXPECT_EQ(y_labels(rollout_charts({&one, &other}, {"a", "b"}))[0], "rmse [K]");
  other.artifacts.units["val/rmse@1/t2m"] = "degC";
  EXPECT_EQ(y_labels(rollout_charts({&one, &other}, {"a", "b"}))[0], "rmse");
}

}  // namespace evaluation_section_test
}  // namespace lockstep::report
