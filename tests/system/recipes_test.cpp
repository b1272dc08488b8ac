// SPDX-License-Identifier: BSD-3-Clause
// The recipes of tools/configs: those for photographs train on real ones and evaluate; those for fields reach errors.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "report/files/metrics.hpp"
#include "support/folders.hpp"
#include "support/program.hpp"

namespace lockstep {
namespace recipes_test {

namespace fs = std::filesystem;

std::vector<std::string> recipes_for_folders() {
  const char* const source = std::getenv("LOCKSTEP_SOURCE_DIR");
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(std::string(source != nullptr ? source : ".") + "/tools/configs")) {
    const bool is_for_folders = testing::read_file(entry.path()).find("\nname = folder\n") != std::string::npos;
    if (is_for_folders) names.push_back(entry.path());
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST(RecipesTest, TakeTwoStepsOnPhotographs) {
  const fs::path photos = testing::sample_data("photos");
  if (!fs::is_directory(photos)) GTEST_SKIP() << "there is no " << photos;
  const testing::TemporaryFolder folder;
  const std::vector<std::string> recipes = recipes_for_folders();
  EXPECT_GE(recipes.size(), 5U);
  for (const std::string& recipe : recipes) {
    SCOPED_TRACE(recipe);
    const std::string run = folder.path(fs::path(recipe).stem());
    const testing::ProgramResult outcome = testing::run_ranks(
        2,
        "--config=" + recipe + " --data.path=" + photos.string() + " --data.cache=" + folder.path("cache") +
            " --train.max_epochs=0 --train.max_steps=2 --train.global_batch_size=16 --log.every=1 --run.dir=" + run,
        300);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_EQ(report::read_series(run + "/metrics.jsonl", "loss").size(), 2U);
    const auto losses = report::read_series(run + "/metrics.jsonl", "val/loss");
    ASSERT_FALSE(losses.empty());
    EXPECT_TRUE(std::isfinite(losses.back().second));
  }
}

/// The last values of some metrics of a run with a recipe.
/// @param more  further arguments; without train.max_epochs, the recipe as it is
std::vector<double> trained(const std::string& recipe, const std::string& data, const std::vector<std::string>& metrics,
                            const std::string& more) {
  const testing::TemporaryFolder folder;
  const std::string run = folder.path("run");
  const testing::ProgramResult outcome =
      testing::run_ranks(1,
                         "--config=" + testing::source_root().string() + "/tools/configs/" + recipe +
                             ".ini --data.path=" + data + " --data.cache=off --run.dir=" + run + " " + more,
                         600);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  std::vector<double> result;
  for (const std::string& metric : metrics) {
    const auto values = report::read_series(run + "/metrics.jsonl", metric);
    result.push_back(values.empty() ? std::nan("") : values.back().second);
  }
  return result;
}

double trained_maps(const std::string& recipe, const std::string& fixed, const std::string& metric,
                    const std::string& more) {
  const std::string maps = testing::sample_data("fields/" + recipe).string();
  return trained(recipe, maps, {metric}, "--data.static=" + maps + "/static.nc:" + fixed + " " + more)[0];
}

/// A recipe for fields that a program makes, and what its training reaches.
struct MadeFields {
  std::string recipe, set;
  std::string few;  ///< sizes of the training set and of the test set of a short test
  std::vector<std::string> metrics;
  std::vector<double> limits;  ///< those of each metric, with every seed
};

const std::vector<MadeFields>& made_fields() {
  static const std::vector<MadeFields> table = {
      {"pde-fno", "burgers", "8 2", {"val/loss", "val/nrmse@10/tensor"}, {0.006, 0.020}},
      {"pde-unet", "burgers", "8 2", {"val/loss", "val/nrmse@10/tensor"}, {0.012, 0.042}},
      {"columns", "columns", "2000 500", {"val/r2"}, {0.985}},
  };
  return table;
}

/// R2 is better the larger it is.
bool is_error(const std::string& metric) { return metric != "val/r2"; }

std::string make_fields(const MadeFields& each, const testing::TemporaryFolder& folder, const std::string& sizes) {
  const std::string data = folder.path(each.set);
  const char* const build = std::getenv("LOCKSTEP_BINARY_DIR");
  const std::string program = std::string(build != nullptr ? build : ".") + "/tools/bench/make_fields ";
  const testing::ProgramResult outcome = testing::run_shell(program + each.set + " " + data + " " + sizes, 300);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  return data;
}

constexpr const char* kSst = "val/rmse/sst";
constexpr const char* kTemperature = "val/rmse/surface_temperature";

// Persistence has 0.736 K and 3.72 K: see tests/data/fields/README.md.
TEST(RecipesTest, MapsTrainForTwoEpochs) {
  EXPECT_LT(trained_maps("sst", "land", kSst, "--train.max_epochs=2"), 0.736);
  EXPECT_LT(trained_maps("seasonal", "orography", kTemperature, "--train.max_epochs=2"), 3.72);
}

TEST(RecipesTest, MapsReachTheErrorsOfTheirBaselines) {
  if (!testing::is_long_run()) GTEST_SKIP() << "minutes; part of tools/test --long";
  double sst = 0, temperature = 0, rolled_out = 0;
  constexpr int kSeeds = 3;
  for (int seed = 1; seed <= kSeeds; ++seed) {
    const std::string more = "--run.seed=" + std::to_string(seed);
    const double error = trained_maps("sst", "land", kSst, more);
    EXPECT_LE(error, 0.51) << "sst, seed " << seed;
    sst += error / kSeeds;
    temperature += trained_maps("seasonal", "orography", kTemperature, more) / kSeeds;
    rolled_out += trained_maps("seasonal", "orography", "val/rmse@5/surface_temperature", more) / kSeeds;
  }
  EXPECT_LE(sst, 0.49);
  EXPECT_LE(temperature, 1.50);
  EXPECT_LE(rolled_out, 2.60);
}

// A mean of the targets has an error of 1 and an R2 of 0.
TEST(RecipesTest, MadeFieldsAreLearned) {
  const testing::TemporaryFolder folder;
  for (const MadeFields& each : made_fields()) {
    SCOPED_TRACE(each.recipe);
    const std::string data = make_fields(each, folder, each.few);
    const double reached = trained(each.recipe, data, each.metrics, "--train.max_epochs=4")[0];
    if (is_error(each.metrics[0])) {
      EXPECT_LT(reached, 0.5);
    } else {
      EXPECT_GT(reached, 0.3);
    }
  }
}

TEST(RecipesTest, MadeFieldsReachTheErrorsOfTheirBaselines) {
  if (!testing::is_long_run()) GTEST_SKIP() << "minutes; part of tools/test --long";
  const testing::TemporaryFolder folder;
  for (const MadeFields& each : made_fields()) {
    const std::string data = make_fields(each, folder, "");
    for (int seed = 1; seed <= 3; ++seed) {
      const std::vector<double> reached =
          trained(each.recipe, data, each.metrics, "--run.seed=" + std::to_string(seed));
      for (std::size_t i = 0; i < reached.size(); ++i) {
        SCOPED_TRACE(each.recipe + ", seed " + std::to_string(seed) + ", " + each.metrics[i]);
        std::cout << each.recipe << ", seed " << seed << ": " << each.metrics[i] << " " << reached[i] << std::endl;
        if (is_error(each.metrics[i])) {
          EXPECT_LE(reached[i], each.limits[i]);
        } else {
          EXPECT_GE(reached[i], each.limits[i]);
        }
      }
    }
  }
}

}  // namespace recipes_test
}  // namespace lockstep
