// SPDX-License-Identifier: BSD-3-Clause
// Every recipe of tools/configs for a folder of photographs trains on real ones and evaluates.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
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

/// The last value of a field of a run with a recipe for maps.
/// @param more  further arguments; without train.max_epochs, the recipe as it is
double trained_maps(const std::string& recipe, const std::string& fixed, const std::string& metric,
                    const std::string& more) {
  const testing::TemporaryFolder folder;
  const std::string maps = testing::sample_data("fields/" + recipe).string();
  const std::string run = folder.path("run");
  const testing::ProgramResult outcome = testing::run_ranks(
      1,
      "--config=" + testing::source_root().string() + "/tools/configs/" + recipe + ".ini --data.path=" + maps +
          " --data.static=" + maps + "/static.nc:" + fixed + " --data.cache=off --run.dir=" + run + " " + more,
      600);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  const auto values = report::read_series(run + "/metrics.jsonl", metric);
  return values.empty() ? std::nan("") : values.back().second;
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

}  // namespace recipes_test
}  // namespace lockstep
