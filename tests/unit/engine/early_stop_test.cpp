// SPDX-License-Identifier: BSD-3-Clause
#include "engine/measures/early_stop.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace lockstep::engine {
namespace early_stop_test {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Row {
  const char* name;
  EarlyStop::EarlyStopOptions options;
  std::vector<double> values;
  std::size_t over_after;  // values; 0 = never
};

std::vector<double> even(double first, double last, int count) {
  std::vector<double> values;
  for (int i = 0; i < count; ++i) values.push_back(first + (last - first) * i / (count - 1));
  return values;
}

// The first four are those of strategy.md 14.5.2.
std::vector<Row> rows() {
  const EarlyStop::EarlyStopOptions greater{.better = Better::higher};
  const auto with = [](EarlyStop::EarlyStopOptions options, double delta, std::int64_t patience) {
    options.min_delta = delta;
    options.patience = patience;
    return options;
  };
  EarlyStop::EarlyStopOptions threshold = with(greater, 1, 10);
  threshold.threshold = 98.5;
  EarlyStop::EarlyStopOptions any_number = with(greater, 0, 2);
  any_number.checks_finite = false;
  EarlyStop::EarlyStopOptions low_loss = with({}, 0, 9);
  low_loss.threshold = 0.25;
  return {
      {"three in a row", with(greater, 1, 3), {90, 91, 92, 88, 89, 90}, 6},
      {"mirrored", with({}, 1, 3), {10, 9, 8, 12, 11, 10}, 6},
      {"patience", with(greater, 1, 10), even(98, 99, 8), 0},
      {"threshold", threshold, even(98, 99, 8), 5},
      {"too small steps do not add up to one", with(greater, 1, 3), {1, 1.4, 1.8, 1.9}, 4},
      {"small steps that do", with(greater, 1, 3), {1, 1.4, 1.8, 2.2, 2.5}, 0},
      {"without a delta anything better counts", with(greater, 0, 2), {1, 1.1, 1.2, 1.3}, 0},
      {"but the same does not", with(greater, 0, 2), {1, 1, 1}, 3},
      {"NaN", with({}, 0, 5), {3, kNan}, 2},
      {"infinity", with({}, 0, 5), {kInfinity}, 1},
      {"NaN is waited for", any_number, {5, kNan, 6, kNan, kNan}, 5},
      {"nothing but NaN", any_number, {kNan, kNan}, 2},
      {"a loss below its threshold", low_loss, {0.5, 0.25, 0.2}, 3},
  };
}

TEST(EarlyStopTest, EndsAfterTheRightValue) {
  for (const Row& row : rows()) {
    EarlyStop stop(row.options);
    for (std::size_t i = 0; i < row.values.size() && stop.reason().empty(); ++i) {
      stop.offer(row.values[i], static_cast<std::int64_t>(10 * i));
      EXPECT_EQ(!stop.reason().empty(), i + 1 == row.over_after) << row.name << " " << i;
    }
  }
}

TEST(EarlyStopTest, SaysWhy) {
  EarlyStop stop({.better = Better::higher, .patience = 2});
  EXPECT_EQ(stop.reason(), "");
  for (const auto& [value, step] : {std::pair{0.5, 10}, {0.75, 20}, {0.7, 30}, {0.75, 40}}) stop.offer(value, step);
  EXPECT_EQ(stop.reason(), "has not improved on 0.75 of step 20 in 2 evaluations");
  EarlyStop infinite({});
  infinite.offer(kNan, 10);
  EXPECT_EQ(infinite.reason(), "is nan");
}

TEST(EarlyStopTest, ContinuesWhereItWas) {
  const EarlyStop::EarlyStopOptions options{.better = Better::higher, .patience = 3};
  EarlyStop used(options);
  for (const double value : {1.0, 3.0, 2.0, 2.5}) used.offer(value, 5);
  checkpoints::Archive archive;
  used.capture(archive, "/hooks/early_stopping");
  EarlyStop fresh(options);
  EXPECT_NE(fresh.best(), used.best());
  fresh.restore(archive, "/hooks/early_stopping");
  EXPECT_EQ(fresh.best(), 3);
  EXPECT_EQ(fresh.waited(), 2);
  EXPECT_EQ(fresh.reason(), "");
  fresh.offer(2.75, 6);
  used.offer(2.75, 6);
  EXPECT_EQ(fresh.reason(), used.reason());
  EXPECT_NE(fresh.reason(), "");
}

TEST(EarlyStopTest, NothingOfferedIsAStateToo) {
  checkpoints::Archive archive;
  EarlyStop({}).capture(archive, "/hooks/early_stopping");
  EarlyStop fresh({});
  fresh.restore(archive, "/hooks/early_stopping");
  EXPECT_EQ(fresh.best(), std::nullopt);
  EXPECT_EQ(fresh.reason(), "");
}

}  // namespace early_stop_test
}  // namespace lockstep::engine
