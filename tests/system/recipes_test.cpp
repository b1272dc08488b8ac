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

}  // namespace recipes_test
}  // namespace lockstep
