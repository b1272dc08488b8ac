// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/data/dataset.hpp>

#include <ATen/ops/empty.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <stdexcept>
#include <thread>

#include "files.hpp"

namespace lockstep::data {
namespace loader_test {

using Indices = std::vector<std::int64_t>;
using std::chrono::milliseconds;

// A sample is its index. Batches take unequal times, so that workers overtake one another.
class Numbers : public Dataset {
 public:
  std::int64_t size() const override { return 1000; }
  Task task() const override { return {.sample_shape = {}, .classes = 1}; }
  std::uint64_t digest() const override { return 0; }

  batch::Batch get(std::span<const batch::Draw> draws) const override {
    ++fetched;
    std::this_thread::sleep_for(delay * (draws.front().index % 3));
    const at::Tensor indices = at::empty({static_cast<std::int64_t>(draws.size())}, at::kLong);
    auto* index = indices.mutable_data_ptr<std::int64_t>();
    for (const batch::Draw& draw : draws) {
      if (draw.index == bad_index) std::rethrow_exception(error);
      *index++ = draw.index;
    }
    return {indices, indices};
  }

  mutable std::atomic<int> fetched = 0;
  std::int64_t bad_index = -1;
  std::exception_ptr error = std::make_exception_ptr(DataError("it is bad"));
  milliseconds delay{1};
};

Indices pair_of(std::int64_t k) { return {2 * k, 2 * k + 1}; }

std::vector<batch::Draw> pair_draws(std::int64_t k) { return draws_of(pair_of(k)); }

Indices taken(Loader& loader) { return values_of<std::int64_t>(loader.next().target()); }

TEST(LoaderTest, BatchesComeInOrderWhateverTheWorkers) {
  for (const int workers : {0, 1, 3, 8}) {
    for (const int prefetch : {1, 4}) {
      Loader loader(std::make_shared<Numbers>(), pair_draws, 5, 25, {.workers = workers, .prefetch = prefetch});
      for (std::int64_t k = 5; k < 25; ++k) EXPECT_EQ(taken(loader), pair_of(k)) << workers << " " << prefetch;
      EXPECT_THROW(loader.next(), std::logic_error);
    }
  }
}

TEST(LoaderTest, BatchesAreChangedBeforeTheyAreTaken) {
  const auto change = [](batch::Batch batch, std::int64_t k) {
    if (k == 7) throw DataError("it cannot be changed");
    batch.set("target of " + std::to_string(k), batch.target());
    batch.drop_first(1);
    return batch;
  };
  for (const int workers : {0, 3}) {
    Loader loader(std::make_shared<Numbers>(), pair_draws, 5, 9, {.workers = workers, .change = change});
    for (std::int64_t k = 5; k < 7; ++k) {
      const batch::Batch batch = loader.next();
      EXPECT_EQ(batch.draws(), draws_of({2 * k + 1}));
      EXPECT_EQ(values_of<std::int64_t>(batch.tensor("target of " + std::to_string(k))), Indices({2 * k + 1}));
    }
    EXPECT_EQ(sentence_of<DataError>([&] { loader.next(); }), "it cannot be changed");
  }
}

TEST(LoaderTest, BatchesKnowTheirDraws) {
  const auto plan = [](std::int64_t k) {
    return std::vector<batch::Draw>{{.index = 3 * k, .epoch = 7, .position = k}};
  };
  Loader loader(std::make_shared<Numbers>(), plan, 2, 3, {.workers = 1});
  const batch::Batch batch = loader.next();
  EXPECT_EQ(batch.draws(), plan(2));
  EXPECT_EQ(batch.size(), 1);
}

// A batch of another size would be given the wrong weight.
TEST(LoaderTest, ADataSetThatGivesFewerSamplesIsRefused) {
  class Short : public Numbers {
   public:
    batch::Batch get(std::span<const batch::Draw> draws) const override { return Numbers::get(draws.first(1)); }
  };
  Loader loader(std::make_shared<Short>(), pair_draws, 0, 1, {.workers = 0, .name = "the training data"});
  EXPECT_EQ(sentence_of<DataError>([&] { loader.next(); }),
            "the training data, batch 0: the data set gave 1 samples instead of 2");
}

TEST(LoaderTest, FetchesAheadButNoFurtherThanAllowed) {
  const auto numbers = std::make_shared<Numbers>();
  Loader loader(numbers, pair_draws, 0, 100, {.workers = 2, .prefetch = 4});
  const auto wait_for = [&](int count) {
    for (int i = 0; i < 2000 && numbers->fetched < count; ++i) std::this_thread::sleep_for(milliseconds(1));
    std::this_thread::sleep_for(milliseconds(20));  // time to go too far
    return numbers->fetched.load();
  };
  EXPECT_EQ(wait_for(4), 4);
  taken(loader);
  EXPECT_EQ(wait_for(5), 5);
}

TEST(LoaderTest, WithoutWorkersNothingIsFetchedAhead) {
  const auto numbers = std::make_shared<Numbers>();
  Loader loader(numbers, pair_draws, 0, 100, {.workers = 0});
  EXPECT_EQ(numbers->fetched, 0);
  taken(loader);
  EXPECT_EQ(numbers->fetched, 1);
}

TEST(LoaderTest, AnErrorReachesTheCallerAtItsBatch) {
  for (const int workers : {0, 1, 3}) {
    const auto numbers = std::make_shared<Numbers>();
    numbers->bad_index = 7;
    Loader loader(numbers, pair_draws, 0, 8, {.workers = workers});
    for (std::int64_t k = 0; k < 3; ++k) EXPECT_EQ(taken(loader), pair_of(k));
    EXPECT_EQ(sentence_of<DataError>([&] { loader.next(); }), "sample 7 of the data set: it is bad");
    EXPECT_EQ(taken(loader), pair_of(4));
  }
}

// Reads no file twice alike: a batch fails, and none of its samples does alone.
class Unsteady : public Numbers {
 public:
  batch::Batch get(std::span<const batch::Draw> draws) const override {
    if (draws.size() > 1) throw std::runtime_error("read error");
    return Numbers::get(draws);
  }
};

TEST(LoaderTest, AnErrorNamesTheSampleAndTheData) {
  Loader unsteady(std::make_shared<Unsteady>(), pair_draws, 4, 5, {.workers = 1, .name = "the training data"});
  EXPECT_EQ(sentence_of<DataError>([&] { unsteady.next(); }), "the training data, batch 4: read error");

  const auto throws = [](auto error) {
    const auto numbers = std::make_shared<Numbers>();
    numbers->bad_index = 1;
    numbers->error = std::make_exception_ptr(error);
    return std::make_unique<Loader>(numbers, pair_draws, 0, 1, LoaderOptions{.workers = 1});
  };
  // An exception that another library throws counts as a fault of the data; what Lockstep or the program says stays
  // what it is.
  EXPECT_EQ(sentence_of<DataError>([&] { throws(std::runtime_error("no JPEG"))->next(); }),
            "sample 1 of the data set: no JPEG");
  EXPECT_EQ(sentence_of<ConfigError>([&] { throws(ConfigError("no such codec"))->next(); }), "no such codec");
  EXPECT_EQ(sentence_of<std::out_of_range>([&] { throws(std::out_of_range("too far"))->next(); }), "too far");
}

TEST(LoaderTest, AnErrorOfThePlanReachesTheCallerToo) {
  const auto plan = [](std::int64_t k) {
    if (k == 1) throw ConfigError("no plan");
    return pair_draws(k);
  };
  Loader loader(std::make_shared<Numbers>(), plan, 0, 3, {.workers = 2});
  EXPECT_EQ(taken(loader), pair_of(0));
  EXPECT_EQ(sentence_of<ConfigError>([&] { loader.next(); }), "no plan");
}

TEST(LoaderTest, EndsWithBatchesLeftOver) {
  for (const int take : {0, 1, 3}) {
    for (const int workers : {1, 3}) {
      Loader loader(std::make_shared<Numbers>(), pair_draws, 0, 100, {.workers = workers, .prefetch = 2});
      for (int i = 0; i < take; ++i) taken(loader);
    }
  }
  const Loader empty(std::make_shared<Numbers>(), pair_draws, 3, 3, {.workers = 2});
}

TEST(LoaderTest, MeasuresTheTimeItWaits) {
  for (const int workers : {0, 1}) {
    const auto numbers = std::make_shared<Numbers>();
    numbers->delay = milliseconds(50);
    Loader loader(numbers, [](std::int64_t) { return draws_of({2}); }, 0, 3, {.workers = workers});
    EXPECT_EQ(loader.wait_seconds(), 0.0);
    taken(loader);
    EXPECT_GE(loader.wait_seconds(), workers == 0 ? 0.1 : 0.01);  // a worker starts before the caller asks
  }
}

TEST(LoaderTest, RefusesImpossibleOptions) {
  EXPECT_THROW(Loader(std::make_shared<Numbers>(), pair_draws, 0, 1, {.workers = -1}), std::invalid_argument);
  EXPECT_THROW(Loader(std::make_shared<Numbers>(), pair_draws, 0, 1, {.workers = 1, .prefetch = 0}),
               std::invalid_argument);
}

}  // namespace loader_test
}  // namespace lockstep::data
