// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/data/sampler.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <stdexcept>
#include <thread>

#include "files.hpp"

namespace lockstep::data {
namespace order_test {

using Indices = std::vector<std::int64_t>;

Indices epoch_of(const OrderPtr& order, std::int64_t epoch) { return order->indices(epoch, 0, order->length()); }

/// Class i has sizes[i] samples, which lie one class after the other.
Indices labels_of(const std::vector<std::int64_t>& sizes) {
  Indices labels;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    labels.insert(labels.end(), static_cast<std::size_t>(sizes[i]), static_cast<std::int64_t>(i));
  }
  return labels;
}

const Indices kLabels = labels_of({2, 3, 7, 12, 1, 9});

/// One of every kind, cut into batches of 4.
std::map<std::string, OrderPtr> every_order() {
  return {{"sequential", sequential_order(34)},
          {"shuffled", shuffled_order(34, 7)},
          {"torch", torch_order(34, 7)},
          {"subset", subset_order(shuffled_order(5, 7), {33, 0, 8, 4, 21})},
          {"blocks", block_order(34, shuffled_order(17, 7), {.blocks = 2, .global_batch_size = 4})},
          {"repeat factor", repeat_factor_order(std::vector<double>(34, 1.4), 7)},
          {"identity", identity_order(kLabels, {.instances = 2, .global_batch_size = 4}, 7)},
          {"class balanced", class_balanced_order(kLabels, 7)},
          {"chunks", chunk_order(labels_of({5, 1, 9, 5, 4, 10}), 2, 7)},
          {"grouped", grouped_order(labels_of({17, 17}), 4, 7)}};
}

TEST(OrderTest, APositionNeedsNoOthers) {
  for (const auto& [name, order] : every_order()) {
    for (const std::int64_t epoch : {0, 1, 5}) {
      const Indices whole = epoch_of(order, epoch);
      ASSERT_EQ(static_cast<std::int64_t>(whole.size()), order->length()) << name;
      // Every order is made again and asked for one part only, as after a resume.
      const OrderPtr fresh = every_order().at(name);
      for (const std::int64_t begin : {order->length() - 2, order->length() / 2, std::int64_t{1}}) {
        EXPECT_EQ(fresh->indices(epoch, begin, 2), Indices({whole.at(begin), whole.at(begin + 1)})) << name;
      }
      for (const std::int64_t index : whole) EXPECT_TRUE(index >= 0 && index < 34) << name;
    }
    EXPECT_EQ(epoch_of(order, 0) == epoch_of(order, 1), name == "sequential") << name;
  }
}

TEST(OrderTest, ThreadsMayAskAtOnceForDifferentEpochs) {
  const OrderPtr order = identity_order(kLabels, {.instances = 2, .global_batch_size = 4}, 7);
  std::vector<Indices> expected;
  for (std::int64_t epoch = 0; epoch < 6; ++epoch) {
    expected.push_back(epoch_of(identity_order(kLabels, {.instances = 2, .global_batch_size = 4}, 7), epoch));
  }
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 60; ++i) {
        const auto epoch = static_cast<std::size_t>((i + thread) % 6);
        EXPECT_EQ(epoch_of(order, static_cast<std::int64_t>(epoch)), expected[epoch]);
      }
    });
  }
}

TEST(OrderTest, ABlockIsReadByOneRankOnly) {
  const Sampler sampler(block_order(35, shuffled_order(11, 3), {.blocks = 3, .global_batch_size = 6}), 6,
                        Remainder::drop);
  EXPECT_EQ(sampler.steps_per_epoch(), 5);  // 11 samples of a block, two a step
  for (int rank = 0; rank < 3; ++rank) {
    std::set<std::int64_t> seen;
    for (std::int64_t step = 0; step < 5; ++step) {
      for (const std::int64_t index : sampler.indices(2, step, share_of(6, rank, 3))) {
        EXPECT_EQ(index / 11, rank);
        seen.insert(index);
      }
    }
    EXPECT_EQ(seen.size(), 10U);
  }
}

// Whole factors are exact; the others come as often as they say, within five deviations of 4000 draws.
TEST(OrderTest, SamplesComeAsOftenAsTheirFactorsSay) {
  const OrderPtr order = repeat_factor_order({2, 0, 1.25, 3.75}, 11);
  EXPECT_EQ(order->length(), 7);
  std::vector<double> counts(4, 0);
  for (std::int64_t epoch = 0; epoch < 4000; ++epoch) {
    for (const std::int64_t index : epoch_of(order, epoch)) ++counts[static_cast<std::size_t>(index)];
  }
  EXPECT_EQ(counts[1], 0);
  // An epoch of 6 to 8 copies is fitted to 7, which moves the shares a little.
  EXPECT_NEAR(counts[0] / 4000, 2, 0.1);
  EXPECT_NEAR(counts[2] / 4000, 1.25, 0.1);
  EXPECT_NEAR(counts[3] / 4000, 3.75, 0.1);
  Indices sorted = epoch_of(repeat_factor_order({2, 0, 1, 3}, 11), 4);
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(sorted, Indices({0, 0, 2, 3, 3, 3}));
}

TEST(OrderTest, RareCategoriesAreRepeated) {
  // Category 0 is in 4 of 4 samples, 1 in one, 2 in two; 2 stands twice in a sample and counts once.
  const std::vector<Indices> categories = {{0}, {0, 1}, {0, 2, 2}, {0, 2}};
  const double root_of_two = std::sqrt(2.0);
  EXPECT_EQ(repeat_factors(categories, 0.5), std::vector<double>({1, root_of_two, 1, 1}));
  EXPECT_EQ(repeat_factors(categories, 0.75, false), std::vector<double>({1, 3, 1.5, 1.5}));
}

TEST(OrderTest, ABatchOfIdentitiesHasKSamplesOfEachOfPClasses) {
  const OrderPtr order = identity_order(kLabels, {.instances = 3, .global_batch_size = 9}, 5);
  // Groups of three, by class: 1, 1, 2, 4, 1 and 3 make twelve, three of them a batch.
  EXPECT_EQ(order->length(), 36);
  const Indices epoch = epoch_of(order, 0);
  for (std::size_t batch = 0; batch < epoch.size(); batch += 9) {
    std::set<std::int64_t> classes;
    for (std::size_t group = batch; group < batch + 9; group += 3) {
      std::set<std::int64_t> samples;
      for (std::size_t i = group; i < group + 3; ++i) {
        EXPECT_EQ(kLabels[static_cast<std::size_t>(epoch[i])], kLabels[static_cast<std::size_t>(epoch[group])]);
        samples.insert(epoch[i]);
      }
      const std::int64_t label = kLabels[static_cast<std::size_t>(epoch[group])];
      const auto distinct = std::min<std::int64_t>(3, std::count(kLabels.begin(), kLabels.end(), label));
      EXPECT_EQ(static_cast<std::int64_t>(samples.size()), distinct);  // repeated only where there are too few
      classes.insert(label);
    }
    EXPECT_EQ(classes.size(), 3U);
  }
}

TEST(OrderTest, EveryClassComesOnceARound) {
  Indices labels = labels_of({1, 4, 20});
  labels.insert(labels.begin() + 3, -1);  // belongs to no class
  const OrderPtr order = class_balanced_order(labels, 3);
  ASSERT_EQ(order->length(), 26);
  std::map<std::int64_t, Indices> samples;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    const Indices whole = epoch_of(order, epoch);
    for (std::size_t round = 0; round + 3 <= whole.size(); round += 3) {
      std::set<std::int64_t> classes;
      for (std::size_t i = round; i < round + 3; ++i) {
        classes.insert(labels[static_cast<std::size_t>(whole[i])]);
        samples[labels[static_cast<std::size_t>(whole[i])]].push_back(whole[i]);
      }
      EXPECT_EQ(classes, (std::set<std::int64_t>{0, 1, 2}));
    }
  }
  // Class 1 goes through its four samples before one comes again. A round that an epoch's end cuts is one of its own,
  // so passes that lie in one epoch are looked at: rounds 0 to 7.
  for (std::size_t pass = 0; pass < 8; pass += 4) {
    EXPECT_EQ(std::set<std::int64_t>(samples[1].begin() + pass, samples[1].begin() + pass + 4).size(), 4U);
  }
}

// Case: groups [1, 0] x 50 and batches of two have members of the same parity.
/// The sizes of the chunks are 3, 1, 4, 2 and 5; samples 0, 5 and 10 are in chunk 0, and so on.
TEST(OrderTest, FewChunksAreInUseAtTheSameTime) {
  const Indices chunks = {0, 1, 2, 3, 4, 0, 2, 3, 4, 4, 0, 2, 2, 4, 4};
  for (const std::int64_t per_window : {1, 2, 5, 9}) {
    std::set<Indices> orders_of_chunks;
    for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
      const Indices order = epoch_of(chunk_order(chunks, per_window, 3), epoch);
      EXPECT_EQ(std::set(order.begin(), order.end()).size(), 15U) << "every sample once";
      Indices met, left;
      std::map<std::int64_t, std::int64_t> rest = {{0, 3}, {1, 1}, {2, 4}, {3, 2}, {4, 5}};
      for (const std::int64_t sample : order) {
        const std::int64_t chunk = chunks[static_cast<std::size_t>(sample)];
        if (std::ranges::find(met, chunk) == met.end()) met.push_back(chunk);
        if (--rest[chunk] == 0) left.push_back(chunk);
        // A chunk of the next window follows only when all chunks before it were left.
        const std::int64_t complete =
            std::ssize(met) <= per_window ? 0 : (std::ssize(met) - 1) / per_window * per_window;
        EXPECT_GE(std::ssize(left), complete) << per_window << " " << epoch;
      }
      orders_of_chunks.insert(met);
    }
    EXPECT_GT(orders_of_chunks.size(), 10U);
  }
  EXPECT_NE(epoch_of(chunk_order(Indices(30, 0), 1, 3), 0), epoch_of(chunk_order(Indices(30, 0), 1, 4), 0));
}

TEST(OrderTest, ABatchIsOfOneGroup) {
  Indices groups;
  for (int i = 0; i < 50; ++i) groups.insert(groups.end(), {1, 0});
  for (const bool shuffle : {true, false}) {
    const Indices epoch = epoch_of(grouped_order(groups, 2, 3, shuffle), 1);
    EXPECT_EQ(std::set<std::int64_t>(epoch.begin(), epoch.end()).size(), 100U);
    for (std::size_t i = 0; i < epoch.size(); i += 2) EXPECT_EQ(epoch[i] % 2, epoch[i + 1] % 2);
  }
  EXPECT_EQ(epoch_of(grouped_order({5, 7, 5, 7, 7}, 2, 0, false), 0), Indices({0, 2, 1, 3}));
  EXPECT_EQ(aspect_groups(std::vector<double>{1.5, 1, 0.5}), Indices({0, 1, 1}));
}

TEST(SamplerTest, WhatRemainsOfAnEpoch) {
  struct Row {
    Remainder remainder;
    std::int64_t steps;
    std::vector<Indices> first_epoch;
    std::vector<Indices> second_epoch;
  };
  const std::vector<Row> rows = {
      {Remainder::drop, 1, {{0, 1, 2}}, {{0, 1, 2}}},
      {Remainder::repeat, 2, {{0, 1, 2}, {3, 4, 0}}, {{0, 1, 2}, {3, 4, 0}}},
      {Remainder::keep, 2, {{0, 1, 2}, {3, 4}}, {{0, 1, 2}, {3, 4}}},
      {Remainder::carry, 1, {{0, 1, 2}}, {{3, 4, 0}}},
  };
  for (const Row& row : rows) {
    const Sampler sampler(sequential_order(5), 3, row.remainder);
    ASSERT_EQ(sampler.steps_per_epoch(), row.steps);
    for (std::int64_t step = 0; step < row.steps; ++step) {
      EXPECT_EQ(sampler.indices(0, step, {0, 3}), row.first_epoch.at(static_cast<std::size_t>(step)));
      EXPECT_EQ(sampler.indices(1, step, {0, 3}), row.second_epoch.at(static_cast<std::size_t>(step)));
    }
  }
  // More than an epoch in one batch.
  EXPECT_EQ(Sampler(sequential_order(2), 5, Remainder::repeat).indices(4, 0, {0, 5}), Indices({0, 1, 0, 1, 0}));
  EXPECT_EQ(Sampler(sequential_order(2), 5, Remainder::carry).indices(1, 0, {1, 4}), Indices({0, 1, 0, 1}));
  EXPECT_EQ(Sampler(sequential_order(2), 5, Remainder::keep).indices(0, 0, {1, 4}), Indices({1}));
  EXPECT_TRUE(Sampler(sequential_order(2), 5, Remainder::keep).indices(0, 0, {3, 2}).empty());
}

TEST(SamplerTest, AnInfiniteStreamContinuesOverOtherNumbersOfRanks) {
  const Sampler sampler(shuffled_order(7, 3), 6, Remainder::carry);
  Indices stream;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    const Indices whole = epoch_of(shuffled_order(7, 3), epoch);
    stream.insert(stream.end(), whole.begin(), whole.end());
  }
  for (int world_size = 1; world_size <= 4; ++world_size) {
    for (std::int64_t step = 0; step < 3; ++step) {
      for (int rank = 0; rank < world_size; ++rank) {
        const Share share = share_of(6, rank, world_size);
        const auto begin = stream.begin() + 6 * step + share.begin;
        EXPECT_EQ(sampler.indices(step, 0, share), Indices(begin, begin + share.count));
      }
    }
  }
}

TEST(SamplerTest, EvaluationLosesAndDoublesNoSample) {
  for (std::int64_t size = 1; size <= 20; ++size) {
    for (int world_size = 1; world_size <= 5; ++world_size) {
      Indices joined;
      for (int rank = 0; rank < world_size; ++rank) {
        const Indices mine = inference_indices(size, rank, world_size);
        joined.insert(joined.end(), mine.begin(), mine.end());
      }
      EXPECT_EQ(joined, epoch_of(sequential_order(size), 0));
    }
  }
}

TEST(SamplerTest, AWrongSetUpIsNamed) {
  struct Row {
    std::string sentence;
    std::function<void()> call;
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<Row> rows = {
      {"data.instances = 3 does not divide train.global_batch_size = 8",
       [] { identity_order(kLabels, {.instances = 3, .global_batch_size = 8}, 0); }},
      {"the training data have 6 classes, but a batch of 28 with data.instances = 4 needs 7",
       [] { identity_order(kLabels, {.instances = 4, .global_batch_size = 28}, 0); }},
      {"sample 1 has the repeat factor -1; it must be at least 0",
       [] {
         repeat_factor_order({1, -1}, 0);
       }},
      {"sample 0 has the repeat factor nan; it must be at least 0", [nan] { repeat_factor_order({nan}, 0); }},
      {"the repeat factors leave no sample in an epoch",
       [] {
         repeat_factor_order({0.1, 0.2}, 0);
       }},
      {"the threshold of repeat factors must be above 0", [] { repeat_factors({{0}}, 0); }},
      {"group 4 has 1 samples, fewer than a batch of 2: they would never be used; lower train.global_batch_size",
       [] {
         grouped_order({3, 3, 4}, 2, 0);
       }},
      {"train.global_batch_size = 5 is not a multiple of data.blocks = 2",
       [] { block_order(10, sequential_order(5), {.blocks = 2, .global_batch_size = 5}); }},
      {"a block has 2 samples, but each global batch needs 3 of it; lower train.global_batch_size",
       [] { block_order(5, sequential_order(2), {.blocks = 2, .global_batch_size = 6}); }},
      {"a subset needs a ratio in (0, 1], not 1.5",
       [] {
         subset_of({0, 1}, 1.5);
       }},
      {"the ratio 0.1 of 2 samples leaves none",
       [] {
         subset_of({0, 1}, 0.1);
       }},
      {"an epoch has 2 samples, fewer than train.global_batch_size = 3; lower train.global_batch_size or set "
       "data.drop_last = false",
       [] { Sampler(sequential_order(2), 3, Remainder::drop); }},
  };
  for (const Row& row : rows) EXPECT_EQ(sentence_of<ConfigError>(row.call), row.sentence);
  EXPECT_EQ(sentence_of<DataError>([] { sequential_order(0); }), "the training data have no samples");
  EXPECT_EQ(sentence_of<DataError>([] { shuffled_order(0, 1); }), "the training data have no samples");
  EXPECT_EQ(sentence_of<DataError>([] { torch_order(0, 1); }), "the training data have no samples");
  EXPECT_EQ(sentence_of<DataError>([] {
              class_balanced_order(Indices{-1, -1}, 1);
            }),
            "no sample of the training data has a class");
  EXPECT_EQ(sentence_of<DataError>([] { inference_indices(0, 0, 1); }), "there are no samples to evaluate");
  EXPECT_THROW(subset_order(sequential_order(3), {1, 2}), std::invalid_argument);
  EXPECT_THROW(block_order(8, sequential_order(3), {.blocks = 2, .global_batch_size = 2}), std::invalid_argument);
  EXPECT_THROW(Sampler(nullptr, 3, Remainder::drop), std::invalid_argument);
}

TEST(OrderTest, RepeatedSamplesFollowEachOther) {
  const OrderPtr order = repeated_order(sequential_order(10), 3);
  EXPECT_EQ(order->length(), 10);
  EXPECT_EQ(order->indices(0, 0, 10), (std::vector<std::int64_t>{0, 0, 0, 1, 1, 1, 2, 2, 2, 3}));
  EXPECT_EQ(order->indices(0, 2, 3), (std::vector<std::int64_t>{0, 1, 1}));
  EXPECT_TRUE(order->indices(0, 4, 0).empty());
  const OrderPtr inner = shuffled_order(100, 5);
  const OrderPtr shuffled = repeated_order(inner, 4);
  for (std::int64_t p = 0; p < 100; ++p) {
    EXPECT_EQ(shuffled->indices(3, p, 1).front(), inner->indices(3, p / 4, 1).front());
  }
}

}  // namespace order_test
}  // namespace lockstep::data
