// SPDX-License-Identifier: BSD-3-Clause
#include "embed/replay_buffer.hpp"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace lockstep::embed {
namespace replay_buffer_test {

batch::Batch batch_of(std::int64_t begin, std::int64_t count) {
  return {{{"input", at::arange(begin, begin + count, at::kFloat).unsqueeze(1)}}, count};
}

void push(ReplayBuffer& buffer, std::int64_t begin, std::int64_t count) {
  std::vector<std::int64_t> rows;
  for (std::int64_t row = 0; row < count; ++row) rows.push_back(row);
  buffer.push(batch_of(begin, count), rows);
}

std::vector<std::int64_t> numbers_in(const at::Tensor& rows) {
  std::vector<std::int64_t> numbers;
  for (std::int64_t i = 0; i < rows.size(0); ++i) numbers.push_back(rows[i].item<std::int64_t>());
  return numbers;
}

std::vector<std::int64_t> kept_in(const ReplayBuffer& buffer) {
  std::vector<std::int64_t> numbers = numbers_in(buffer.values().at("input"));
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

std::vector<std::int64_t> drawn_from(const ReplayBuffer& buffer, std::int64_t step, std::int64_t count) {
  return numbers_in(buffer.draw(step, count).at("input").as<at::Tensor>());
}

TEST(ReplayBufferTest, ARingKeepsTheLatestSamples) {
  ReplayBuffer buffer({.capacity = 5});
  push(buffer, 0, 3);
  EXPECT_EQ(kept_in(buffer), (std::vector<std::int64_t>{0, 1, 2}));
  push(buffer, 3, 9);
  EXPECT_EQ(kept_in(buffer), (std::vector<std::int64_t>{7, 8, 9, 10, 11}));
  EXPECT_EQ(buffer.pushed(), 12);
}

TEST(ReplayBufferTest, AReservoirKeepsEachSampleWithTheSameProbability) {
  constexpr std::int64_t kCapacity = 8;
  constexpr std::int64_t kPushed = 40;
  constexpr int kRuns = 2000;
  std::vector<int> counts(kPushed, 0);
  for (int run = 0; run < kRuns; ++run) {
    ReplayBuffer buffer({.capacity = kCapacity, .is_reservoir = true, .seed = static_cast<std::uint64_t>(run)});
    push(buffer, 0, kPushed / 2);
    push(buffer, kPushed / 2, kPushed / 2);
    for (const std::int64_t number : kept_in(buffer)) ++counts[static_cast<std::size_t>(number)];
  }
  // Binomial: the standard deviation is sqrt(n p (1 - p)); five of them for 40 numbers.
  const double p = static_cast<double>(kCapacity) / kPushed;
  const double bound = 5 * std::sqrt(kRuns * p * (1 - p));
  for (const int count : counts) EXPECT_NEAR(count, kRuns * p, bound);
}

TEST(ReplayBufferTest, DrawsAreDistinctWhileThereAreEnoughAndDependOnTheStep) {
  ReplayBuffer buffer({.capacity = 100, .seed = 3, .number = 2});
  push(buffer, 0, 50);
  const std::vector<std::int64_t> first = drawn_from(buffer, 0, 20);
  EXPECT_EQ(std::set<std::int64_t>(first.begin(), first.end()).size(), 20U);
  EXPECT_EQ(drawn_from(buffer, 0, 20), first);
  EXPECT_NE(drawn_from(buffer, 1, 20), first);
  ReplayBuffer other({.capacity = 100, .seed = 3, .number = 1});
  push(other, 0, 50);
  EXPECT_NE(drawn_from(other, 0, 20), first);
  const std::vector<std::int64_t> more = drawn_from(buffer, 0, 120);
  for (std::int64_t number = 0; number < 50; ++number) EXPECT_GE(std::count(more.begin(), more.end(), number), 2);
}

TEST(ReplayBufferTest, WhatWasPushedDoesNotDependOnTheSizesOfThePushes) {
  for (const bool is_reservoir : {false, true}) {
    ReplayBuffer at_once({.capacity = 6, .is_reservoir = is_reservoir, .seed = 1});
    ReplayBuffer one_by_one({.capacity = 6, .is_reservoir = is_reservoir, .seed = 1});
    push(at_once, 0, 31);
    for (std::int64_t i = 0; i < 31; ++i) push(one_by_one, i, 1);
    EXPECT_EQ(drawn_from(at_once, 4, 6), drawn_from(one_by_one, 4, 6));
  }
}

TEST(ReplayBufferTest, ARestoredBufferContinues) {
  ReplayBuffer buffer({.capacity = 6, .is_reservoir = true, .seed = 1});
  push(buffer, 0, 20);
  ReplayBuffer restored({.capacity = 6, .is_reservoir = true, .seed = 1});
  std::map<std::string, at::Tensor> values = buffer.values();
  for (auto& [name, rows] : values) rows = rows.clone();
  restored.restore(std::move(values), buffer.pushed());
  push(buffer, 20, 20);
  push(restored, 20, 20);
  EXPECT_EQ(drawn_from(restored, 9, 6), drawn_from(buffer, 9, 6));
}

}  // namespace replay_buffer_test
}  // namespace lockstep::embed
