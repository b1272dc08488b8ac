// SPDX-License-Identifier: BSD-3-Clause
// The numbers, units and pictures that runs on fields report.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "checkpoints/store/store.hpp"
#include "field_files.hpp"
#include "support/program.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep {
namespace field_report_test {

using testing::ProgramResult;
using testing::run_ranks;
using Json = nlohmann::json;

std::size_t count_of(const std::string& text, const std::string& words) {
  std::size_t count = 0;
  for (std::size_t place = text.find(words); place != std::string::npos; place = text.find(words, place + 1)) ++count;
  return count;
}

constexpr std::int64_t kSteps = 24, kLatitudes = 4, kLongitudes = 6;

arrays::AttributeValue text(const std::string& value) { return std::vector<std::string>{value}; }

/// The variables t [time, latitude, longitude] in K and w without a unit. Waves travel eastwards, and the north is
/// colder.
/// @param has_longitudes_first  the same fields as [time, longitude, latitude]
void write_grid(const std::string& path, bool has_longitudes_first = false) {
  std::vector<std::string> axes = {"time", "latitude", "longitude"};
  if (has_longitudes_first) std::swap(axes[1], axes[2]);
  arrays::NetcdfContents contents;
  contents.dimensions = {{"time", kSteps}, {"latitude", kLatitudes}, {"longitude", kLongitudes}};
  const auto add_axis = [&](const std::string& name, const std::string& unit, const std::vector<double>& values) {
    contents.variables.push_back({.name = name,
                                  .dimensions = {name},
                                  .type = {.kind = arrays::NumberKind::real, .bytes = 8},
                                  .attributes = {{"units", text(unit)}},
                                  .values = values});
  };
  add_axis("latitude", "degrees_north", {-45, -15, 15, 45});
  add_axis("longitude", "degrees_east", {0, 60, 120, 180, 240, 300});
  for (const std::string name : {"t", "w"}) {
    arrays::NetcdfVariable variable{
        .name = name, .dimensions = axes, .type = {.kind = arrays::NumberKind::real, .bytes = 4}};
    if (name == "t") variable.attributes["units"] = text("K");
    const std::int64_t outer = has_longitudes_first ? kLongitudes : kLatitudes;
    const std::int64_t inner = has_longitudes_first ? kLatitudes : kLongitudes;
    for (std::int64_t step = 0; step < kSteps; ++step) {
      for (std::int64_t i = 0; i < outer; ++i) {
        for (std::int64_t j = 0; j < inner; ++j) {
          const auto latitude = static_cast<double>(has_longitudes_first ? j : i);
          const auto longitude = static_cast<double>(has_longitudes_first ? i : j);
          const double phase = longitude - static_cast<double>(step) + (name == "w" ? 2 : 0);
          variable.values.push_back(280 - 3 * latitude + std::sin(phase) * (1 + latitude));
        }
      }
    }
    contents.variables.push_back(std::move(variable));
  }
  testing::write_netcdf(path, contents);
}

class FieldReportTest : public ::testing::Test {
 protected:
  FieldReportTest() { write_grid(folder_.path("grid.nc")); }

  /// Trains a small network on t and w; the last steps are the validation part.
  std::string train(int ranks, const std::string& more, const std::string& file = "grid.nc") {
    const std::string run = folder_.path("run" + std::to_string(++runs_));
    const ProgramResult result = run_ranks(
        ranks, "--data.name=fields --data.path=" + folder_.path(file) +
                   " --data.variables=t,w --data.val_fraction=0.4 --data.cache=off --model.name=unet --model.width=4"
                   " --model.depth=1 --model.norm=none --train.global_batch_size=4 --train.max_steps=6"
                   " --optim.lr=0.003 --train.lanes=2 --log.every=1 --run.dir=" +
                   run + " " + more);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return run;
  }

  /// The values of a field in the records of a run.
  static std::vector<double> recorded(const std::string& run, const std::string& field) {
    std::vector<double> values;
    std::istringstream lines(testing::read_file(run + "/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const Json record = Json::parse(line);
      if (record.contains(field)) values.push_back(record.at(field));
    }
    return values;
  }

  testing::TemporaryFolder folder_;
  int runs_ = 0;
};

// A target of two steps has numbers for its second one. A rollout has more steps, the second of which has that name.
TEST_F(FieldReportTest, ANumberOfAStepHasOneValueAndSelectsTheCheckpoint) {
  const std::string arguments =
      "--data.steps_out=2 --eval.every=2 --ckpt.keep_best=1 --ckpt.metric=val/rmse@2/t --ckpt.every=never"
      " --eval.rollout=";
  std::vector<std::string> runs;
  for (const int passes : {0, 2}) {
    const std::string run = train(2, arguments + std::to_string(passes));
    runs.push_back(run);
    const std::vector<double> values = recorded(run, "val/rmse@2/t");
    ASSERT_EQ(values.size(), 3U);
    const auto best = static_cast<std::int64_t>(std::ranges::min_element(values) - values.begin());
    const checkpoints::Archive last = checkpoints::read(checkpoints::checkpoint_of(run + "/ckpt", 6));
    EXPECT_EQ(last.real("/hooks/best/0", "value"), values[static_cast<std::size_t>(best)]) << passes;
    EXPECT_EQ(last.integer("/hooks/best/0", "step"), 2 * (best + 1)) << passes;
    EXPECT_EQ(count_of(testing::read_file(run + "/metrics.jsonl"), "\"val/rmse@2/t\""), 3U) << passes;
    EXPECT_EQ(recorded(run, "val/rmse@4/w").size(), passes == 0 ? 0U : 3U);
    EXPECT_EQ(recorded(run, "val/rmse/t").size(), 3U);
    EXPECT_EQ(count_of(testing::read_file(run + "/report.html"), "<title>t: rmse</title>"), 1U);

    const ProgramResult evaluated = run_ranks(1, "eval --from=" + run + " --data.cache=off --json");
    ASSERT_EQ(evaluated.exit_code, 0) << evaluated.output;
    EXPECT_EQ(Json::parse(evaluated.output).at("metrics").at("rmse@2/t").get<double>(), values.back());
    EXPECT_EQ(count_of(evaluated.output, "\"rmse@2/t\""), 1U) << evaluated.output;
  }
  // One pass has the samples and the steps of the target, so that both ways give the same numbers.
  const std::string one_pass = train(1, arguments + "1");
  EXPECT_EQ(recorded(one_pass, "val/rmse@2/t"), recorded(runs[0], "val/rmse@2/t"));
  EXPECT_EQ(recorded(one_pass, "val/rmse@1/t"), recorded(runs[0], "val/rmse/t"));
}

TEST_F(FieldReportTest, ChartsHaveTheUnitsOfTheFiles) {
  const std::string run = train(2, "--eval.rollout=2 --eval.metrics=field --eval.metrics=well");
  const Json units = Json::parse(testing::read_file(run + "/units.json"));
  for (const char* name : {"val/rmse/t", "val/bias/t", "val/rmse@2/t", "val/persistence_rmse@1/t"}) {
    EXPECT_EQ(units.value(name, ""), "K") << name;
  }
  for (const auto& [name, unit] : units.items()) {
    EXPECT_TRUE(name.ends_with("/t")) << name << ": w has no unit";
    EXPECT_EQ(name.find("nrmse"), std::string::npos) << name << " is a ratio";
  }
  const std::string page = testing::read_file(run + "/report.html");
  const std::size_t chart = page.find("<title>t: rmse</title>");
  ASSERT_NE(chart, std::string::npos);
  EXPECT_EQ(count_of(page.substr(chart, page.find("</svg>", chart) - chart), ">rmse [K]</text>"), 1U);
  const std::size_t other = page.find("<title>w: rmse</title>");
  ASSERT_NE(other, std::string::npos);
  EXPECT_EQ(count_of(page.substr(other, page.find("</svg>", other) - other), ">rmse</text>"), 1U);
  EXPECT_EQ(count_of(page, "nrmse [K]"), 0U);
}

// Latitudes are rows and longitudes columns, whichever axis is the first one in the file.
TEST_F(FieldReportTest, PicturesDoNotDependOnTheOrderOfTheAxes) {
  write_grid(folder_.path("turned.nc"), /*has_longitudes_first=*/true);
  const auto pictures_of = [](const std::string& run) {
    std::map<std::string, Json> pictures;
    for (const Json& picture : Json::parse(testing::read_file(run + "/pictures.json"))) {
      pictures[picture.at("name")] = picture;
    }
    return pictures;
  };
  const auto wanted = pictures_of(train(1, ""));
  const std::string run = train(1, "", "turned.nc");
  const auto found = pictures_of(run);
  ASSERT_EQ(found.size(), wanted.size());
  for (const std::string name : {"val/field_00_t_target", "val/field_01_w_target", "val/field_00_t_input"}) {
    EXPECT_EQ(found.at(name).at("height"), kLatitudes);
    EXPECT_EQ(found.at(name).at("width"), kLongitudes);
    EXPECT_EQ(found.at(name).at("scale").at("unit"), name.find("_t_") == std::string::npos ? "" : "K");
  }
  EXPECT_EQ(found.at("val/rmse_t").at("height"), kLatitudes);
  EXPECT_EQ(found.at("val/bias_w").at("width"), kLongitudes);

  const ProgramResult predicted =
      run_ranks(1, "predict --from=" + run + " --data.cache=off --predict.out=" + folder_.path("out.npy") +
                       " --predict.html=" + folder_.path("page.html"));
  ASSERT_EQ(predicted.exit_code, 0) << predicted.output;
  const std::string page = testing::read_file(folder_.path("page.html"));
  EXPECT_GT(count_of(page, "width=\"6\" height=\"4\""), 0U);
  EXPECT_EQ(count_of(page, "width=\"4\" height=\"6\""), 0U);
}

}  // namespace field_report_test
}  // namespace lockstep
