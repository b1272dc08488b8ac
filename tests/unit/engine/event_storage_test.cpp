// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/engine/event_storage.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

namespace lockstep::engine {
namespace event_storage_test {

std::vector<std::string> names_of(const EventStorage& events) {
  std::vector<std::string> names;
  for (const Scalar& scalar : events.latest(1)) names.push_back(scalar.name);
  return names;
}

TEST(EventStorageTest, ScopesNestAndEnd) {
  EventStorage events;
  events.keep_pictures(1);
  {
    const auto a = events.scope("a/");
    events.put("x", 1);
    {
      const auto b = events.scope("b");
      events.put("x", 2);
      events.put(Picture{.name = "digits"});
    }
    events.put("y", 3);
    try {
      const auto c = events.scope("c");
      throw std::runtime_error("left early");
    } catch (const std::runtime_error&) {
    }
    events.put("z", 4);
  }
  events.put("x", 5);
  EXPECT_EQ(names_of(events), (std::vector<std::string>{"a/x", "a/b/x", "a/y", "a/z", "x"}));
  EXPECT_EQ(events.take_images().at(0).name, "a/b/digits");
}

TEST(EventStorageTest, ASeriesHasANameAndOneOwner) {
  EventStorage events;
  events.put("memory_mb", 1, {.owner = "utilization"});
  events.put("mine", 2);
  EXPECT_THROW(events.put("memory_mb", 3), ConfigError);
  EXPECT_THROW(events.put("mine", 4, {.owner = "utilization"}), ConfigError);
  EXPECT_THROW(events.put("", 5), ConfigError);
  events.put("memory_mb", 6, {.owner = "utilization"});
  EXPECT_EQ(events.history("memory_mb").mean_of_all(), 3.5);
  EXPECT_EQ(events.history("mine").mean_of_all(), 2);
  events.put_of_rank("seconds", 1, "rank_events");
  EXPECT_THROW(events.put_of_rank("seconds", 3), ConfigError);
  EXPECT_THROW(events.put_of_rank("", 3), ConfigError);
  EXPECT_EQ(events.take_rank_means().at(0).second, 1);
}

TEST(EventStorageTest, UpdatesAreWhatWasPutSinceWhateverItsStep) {
  EventStorage events;
  std::size_t cursor = 0;
  events.set_step(10);
  events.put("loss", 1);
  events.put("lr", 0.5, {.is_smoothed = false});
  EXPECT_EQ(events.updates_since(cursor, 20).size(), 2U);
  EXPECT_TRUE(events.updates_since(cursor, 20).empty());
  events.put("late", 7, {.step = 3});
  const std::vector<Scalar> updates = events.updates_since(cursor, 20);
  ASSERT_EQ(updates.size(), 1U);
  EXPECT_EQ(updates[0].name, "late");
  EXPECT_EQ(updates[0].step, 3);
}

TEST(EventStorageTest, SmoothedSeriesAreMediansAndOthersTheirLatest) {
  EventStorage events;
  for (const double value : {1.0, 9.0, 2.0, 8.0}) {
    events.set_step(events.step() + 1);
    events.put("loss", value);
    events.put("lr", value, {.is_smoothed = false});
  }
  EXPECT_EQ(events.latest(3)[0].value, 8);  // median of 9, 2, 8
  EXPECT_EQ(events.latest(4)[0].value, 5);  // median of 1, 9, 2, 8
  EXPECT_EQ(events.latest(4)[1].value, 8);
  events.put("lr", 3);  // says nothing of smoothing
  EXPECT_EQ(events.latest(4)[1].value, 3);
  EXPECT_THROW(events.put("lr", 4, {.is_smoothed = true}), std::logic_error);
  EXPECT_EQ(events.latest(4)[1].value, 3);
  EXPECT_THROW(events.put("loss", 1, {.count = 0}), std::invalid_argument);
  EXPECT_THROW(events.put("new", 1, {.count = 0}), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(events.history("new")), std::out_of_range);
}

TEST(EventStorageTest, PicturesAreKeptForWritersAloneAndNotWithoutEnd) {
  EventStorage events;
  events.put(Picture{.name = "nobody looks"});
  EXPECT_TRUE(events.take_images().empty());
  events.keep_pictures(2);
  for (int i = 0; i < 5; ++i) {
    events.put(Picture{.name = std::to_string(i)});
    events.put(Histogram{.name = std::to_string(i)});
    events.put(Table{.name = std::to_string(i)});
  }
  const std::vector<Picture> images = events.take_images();
  ASSERT_EQ(images.size(), 2U);
  EXPECT_EQ(images[0].name, "3");
  EXPECT_EQ(events.take_histograms().at(1).name, "4");
  EXPECT_EQ(events.take_tables().at(1).name, "4");
  EXPECT_TRUE(events.take_images().empty());
}

TEST(HistoryTest, RejectsWrongQueries) {
  EXPECT_THROW(History(0), std::invalid_argument);
  History history(2);
  EXPECT_THROW(static_cast<void>(history.latest()), std::out_of_range);
  EXPECT_THROW(static_cast<void>(history.median(3)), std::out_of_range);
  EXPECT_THROW(static_cast<void>(history.mean_of_all()), std::out_of_range);
  EXPECT_THROW(history.add({.value = 1, .count = 0}), std::invalid_argument);
  history.add({.value = 1});
  EXPECT_THROW(static_cast<void>(history.mean(0)), std::invalid_argument);
}

// A thousand values in one of each length: the last are kept, the mean is that of all.
TEST(HistoryTest, KeepsTheLastAndTheMeanOfAll) {
  for (const std::size_t longest : std::vector<std::size_t>{1, 7, 999, 1000, 2000}) {
    History history(longest);
    for (int i = 0; i < 1000; ++i) history.add({.value = static_cast<double>(i), .step = i});
    const std::size_t kept = std::min<std::size_t>(longest, 1000);
    ASSERT_EQ(history.size(), kept);
    for (std::size_t i = 0; i < kept; ++i) EXPECT_EQ(history.at(i).step, static_cast<std::int64_t>(1000 - kept + i));
    EXPECT_EQ(history.mean_of_all(), 499.5);
  }
}

}  // namespace event_storage_test
}  // namespace lockstep::engine
