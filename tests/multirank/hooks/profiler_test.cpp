// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <map>
#include <set>

#include "hooked_run.hpp"
#include "support/program.hpp"

namespace lockstep::engine {
namespace profiler_test {

namespace fs = std::filesystem;
using nlohmann::json;

/// Begin and end of every step that is shown, by rank and name.
std::map<int, std::map<std::string, std::pair<double, double>>> steps_in(const json& trace) {
  std::map<int, std::map<std::string, std::pair<double, double>>> steps;
  for (const json& event : trace.at("traceEvents")) {
    const std::string name = event.at("name");
    if (event.at("ph") != "X" || !name.starts_with("step ")) continue;
    const double begin = event.at("ts");
    steps[event.at("pid")][name] = {begin, begin + event.at("dur").get<double>()};
  }
  return steps;
}

class ProfilerTest : public ::testing::Test {
 protected:
  HookedRun run_with(const std::string& options) {
    return {world_, with_hook("profiler," + options, {{"run.dir", folder_.path()}})};
  }
  json trace(const std::string& name) const { return json::parse(testing::read_file(folder_.path() + "/" + name)); }

  mpi::Communicator world_ = mpi::Communicator::world();
  CommonFolder folder_{world_};
};

TEST_F(ProfilerTest, ShowsItsStepsWithALaneForEachRank) {
  HookedRun run = run_with("from_step=3,steps=2");
  EXPECT_EQ(run.trainer.train(), Outcome::done);
  world_.barrier();
  const json shown = trace("trace.json");
  const auto steps = steps_in(shown);
  ASSERT_EQ(steps.size(), static_cast<std::size_t>(world_.size()));
  for (const auto& [rank, of_rank] : steps) {
    ASSERT_EQ(of_rank.size(), 2U) << rank;
    ASSERT_TRUE(of_rank.contains("step 4") && of_rank.contains("step 5")) << rank;
    EXPECT_LE(of_rank.at("step 4").second, of_rank.at("step 5").first);
    std::set<std::string> inside;
    for (const json& event : shown.at("traceEvents")) {
      if (event.at("pid") != rank || event.at("ph") != "X") continue;
      const double begin = event.at("ts");
      EXPECT_GE(event.at("dur").get<double>(), 0);
      const auto [first, last] = of_rank.at("step 4");
      if (first <= begin && begin + event.at("dur").get<double>() <= last) inside.insert(event.at("name"));
    }
    EXPECT_TRUE(inside.contains("aten::relu") || inside.contains("aten::addmm") || inside.contains("aten::linear"))
        << json(inside).dump();
    for (const char* const section :
         {"data and forward", "loss", "backward", "update", "rest of the step", "agreement"}) {
      EXPECT_TRUE(inside.contains(section)) << section;
    }
  }
}

TEST_F(ProfilerTest, OrOfSomeRanks) {
  const int last = world_.size() - 1;
  HookedRun run = run_with("from_step=0,steps=1,ranks=" + std::to_string(last));
  run.trainer.train();
  world_.barrier();
  const auto steps = steps_in(trace("trace.json"));
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_EQ(steps.begin()->first, last);
}

TEST_F(ProfilerTest, ARunThatEndsInsideWritesWhatThereIs) {
  HookedRun run = run_with("from_step=10,steps=100");
  EXPECT_EQ(run.trainer.train(), Outcome::done);
  world_.barrier();
  EXPECT_EQ(steps_in(trace("trace.json")).at(0).size(), 2U);
}

TEST_F(ProfilerTest, AfterAFailureEachRankWritesItsOwn) {
  HookedRun run = run_with("from_step=0,steps=5");
  run.hook().before_train(run.trainer.view());
  run.hook().before_step(run.trainer.view());
  at::ones({3}).neg();
  run.hook().before_agreement(run.trainer.view());
  run.hook().after_train(run.trainer.view(), Outcome::failed);  // called as if each rank were alone
  const json own = trace("trace-rank0000" + std::to_string(world_.rank()) + ".json");
  std::set<std::string> names;
  for (const json& event : own.at("traceEvents")) {
    EXPECT_EQ(event.at("pid"), world_.rank());
    names.insert(event.at("name"));
  }
  EXPECT_TRUE(names.contains("aten::neg"));
  EXPECT_TRUE(names.contains("rest of the step"));
  world_.barrier();
  EXPECT_FALSE(fs::exists(folder_.path() + "/trace.json"));
}

TEST_F(ProfilerTest, WithoutItsStepsThereIsNoTrace) {
  HookedRun run = run_with("from_step=12");
  EXPECT_EQ(run.trainer.train(), Outcome::done);
  world_.barrier();
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}

TEST_F(ProfilerTest, AFolderThatIsNotThereEndsNoRun) {
  HookedRun run(world_, with_hook("profiler,from_step=0,steps=1", {{"run.dir", folder_.path() + "/missing"}}));
  EXPECT_EQ(run.trainer.train(), Outcome::done);
}

TEST_F(ProfilerTest, ARankThatThereIsNotIsRefused) {
  HookedRun run = run_with("ranks=0,7");
  EXPECT_EQ(agreed_error_of<ConfigError>(world_, [&] { run.trainer.train(); }),
            "train.hooks: profiler: ranks: there is no rank 7 among " + std::to_string(world_.size()));
}

}  // namespace profiler_test
}  // namespace lockstep::engine
