// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include "core/text/table.hpp"
#include "engine/setup/strategy.hpp"

namespace lockstep::engine {
namespace strategy_table_test {

StrategySettings named(const std::string& name) { return {.name = {name, "strategy.name (test)"}}; }

TEST(StrategyTableTest, AutoIsSingleForOneRankElseDdp) {
  EXPECT_EQ(chosen_strategy(named("auto"), 1).name, "single");
  EXPECT_EQ(chosen_strategy(named("auto"), 2).name, "ddp");
  for (const StrategyRow& row : strategies()) EXPECT_EQ(chosen_strategy(named(row.name), 3).name, row.name);
}

TEST(StrategyTableTest, TheKeyDescribesEveryRow) {
  const KeySpec key = StrategySettings::keys().front();
  EXPECT_EQ(key.name, "strategy.name");
  EXPECT_EQ(key.choices, (std::vector<std::string>{"auto", "single", "ddp", "sharded"}));
  for (const StrategyRow& row : strategies()) EXPECT_NE(key.help.find(row.name + ": " + row.help), std::string::npos);
}

TEST(StrategyTableTest, SingleIsForOneRank) {
  const StrategyRow& single = chosen_strategy(named("single"), 2);
  EXPECT_NO_THROW(single.require(named("single"), 1));
  try {
    single.require(named("single"), 2);
    FAIL() << "two ranks";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "strategy.name (test): single requires one rank, but there are 2; use ddp");
  }
  EXPECT_EQ(find_row(strategies(), "ddp", "").require, nullptr);
  EXPECT_EQ(find_row(strategies(), "sharded", "").require, nullptr);
}

TEST(StrategyTableTest, ShardedDividesWhatTheSettingsSay) {
  StrategySettings settings = named("sharded");
  settings.stage = 2;
  settings.blocks = "block*, head";
  settings.prefetches = false;
  settings.offloads = true;
  settings.is_within_hosts = true;
  parallel::DdpOptions options{.shares_parameters = true};
  find_row(strategies(), "sharded", "").lay_out(settings, options);
  EXPECT_FALSE(options.shares_parameters);
  EXPECT_EQ(options.sharding.stage, 2);
  EXPECT_EQ(options.sharding.blocks, (std::vector<std::string>{"block*", "head"}));
  EXPECT_FALSE(options.sharding.prefetches);
  EXPECT_TRUE(options.sharding.offloads);
  EXPECT_TRUE(options.sharding.is_within_hosts);
  for (const char* const name : {"single", "ddp"}) EXPECT_EQ(find_row(strategies(), name, "").lay_out, nullptr);
}

}  // namespace strategy_table_test
}  // namespace lockstep::engine
