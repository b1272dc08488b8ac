// SPDX-License-Identifier: BSD-3-Clause
// The loader with data sets of samples: all threads fill one batch, in memory that is used again.
#include <lockstep/data/dataset.hpp>

#include <ATen/ops/empty.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <new>
#include <set>
#include <stdexcept>
#include <thread>

#include "data/source/roles.hpp"
#include "files.hpp"

namespace {

std::atomic<std::int64_t> allocation_count = 0;

void* counted_allocation(std::size_t size) {
  ++allocation_count;
  if (void* const memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t size) { return counted_allocation(size); }
void* operator new[](std::size_t size) { return counted_allocation(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace lockstep::data {
namespace sample_loader_test {

using std::chrono::milliseconds;

constexpr std::int64_t kWidth = 5;

/// Sample i is the row 100 i, 100 i + 1, ... and the label i.
class Rows : public SampleDataset {
 public:
  std::int64_t size() const override { return 100'000; }
  Task task() const override { return {.sample_shape = {kWidth}, .classes = 1}; }
  std::uint64_t digest() const override { return 0; }
  SampleLayout layout() const override {
    return {.fields = {{.name = "data", .shape = {kWidth}}, {.name = "label", .shape = {}, .dtype = at::kLong}}};
  }
  void fill(const batch::Draw& draw, batch::ValueMap& row) const override {
    auto* const numbers = row.at("data").as<at::Tensor>().mutable_data_ptr<float>();
    for (std::int64_t i = 0; i < kWidth; ++i) numbers[i] = static_cast<float>(100 * draw.index + i);
    *row.at("label").as<at::Tensor>().mutable_data_ptr<std::int64_t>() = draw.index;
  }
};

Loader::Plan batches_of(std::int64_t size) {
  return [size](std::int64_t k) {
    std::vector<batch::Draw> draws;
    for (std::int64_t i = 0; i < size; ++i) draws.push_back({.index = k * size + i, .epoch = 0, .position = 0});
    return draws;
  };
}

void expect_rows(const batch::Batch& batch, std::int64_t first) {
  const std::vector<float> numbers = values_of<float>(batch.input());
  ASSERT_EQ(std::ssize(numbers), batch.size() * kWidth);
  for (std::int64_t i = 0; i < std::ssize(numbers); ++i) {
    ASSERT_EQ(numbers[static_cast<std::size_t>(i)], static_cast<float>(100 * (first + i / kWidth) + i % kWidth));
  }
  EXPECT_EQ(values_of<std::int64_t>(batch.target()).front(), first);
}

TEST(SampleLoaderTest, TheWorkersDoNotChangeTheBatches) {
  for (const int workers : {0, 1, 3, 8}) {
    for (const int prefetch : {1, 4}) {
      Loader loader(std::make_shared<Rows>(), batches_of(17), 3, 40, {.workers = workers, .prefetch = prefetch});
      for (std::int64_t k = 3; k < 40; ++k) {
        const batch::Batch batch = loader.next();
        EXPECT_EQ(batch.draws(), batches_of(17)(k));
        expect_rows(batch, 17 * k);
      }
    }
  }
}

TEST(SampleLoaderTest, BatchesOfSeveralSizesAndEmptyOnes) {
  const auto plan = [](std::int64_t k) { return batches_of(k % 4)(k); };
  for (const int workers : {0, 2}) {
    Loader loader(std::make_shared<Rows>(), plan, 0, 24, {.workers = workers});
    for (std::int64_t k = 0; k < 24; ++k) {
      const batch::Batch batch = loader.next();
      ASSERT_EQ(batch.size(), k % 4);
      EXPECT_EQ(batch.input().sizes().vec(), (std::vector<std::int64_t>{k % 4, kWidth}));
      if (k % 4 > 0) expect_rows(batch, (k % 4) * k);
    }
  }
}

/// Waits until several threads load samples of one batch.
class Meeting : public Rows {
 public:
  void fill(const batch::Draw& draw, batch::ValueMap& row) const override {
    ++arrived;
    for (int i = 0; i < 5000 && arrived < wanted; ++i) std::this_thread::sleep_for(milliseconds(1));
    Rows::fill(draw, row);
  }
  mutable std::atomic<int> arrived = 0;
  int wanted = 3;
};

TEST(SampleLoaderTest, AllWorkersFillOneBatch) {
  const auto meeting = std::make_shared<Meeting>();
  Loader loader(meeting, batches_of(3), 0, 1, {.workers = 3, .prefetch = 1});
  const auto start = std::chrono::steady_clock::now();
  expect_rows(loader.next(), 0);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5)) << "one thread filled the batch";
}

TEST(SampleLoaderTest, BatchesInUseAreNeverOverwritten) {
  Loader loader(std::make_shared<Rows>(), batches_of(8), 0, 60, {.workers = 2, .prefetch = 2});
  std::vector<batch::Batch> kept;
  std::vector<at::Tensor> views;  // views of batches that are gone
  for (std::int64_t k = 0; k < 60; ++k) {
    batch::Batch batch = loader.next();
    if (k % 3 == 0)
      kept.push_back(std::move(batch));
    else if (k % 3 == 1)
      views.push_back(batch.input().select(1, 0));
  }
  for (std::size_t i = 0; i < kept.size(); ++i) expect_rows(kept[i], 8 * 3 * static_cast<std::int64_t>(i));
  for (std::size_t i = 0; i < views.size(); ++i) {
    EXPECT_EQ(views[i][0].item<float>(), static_cast<float>(100 * 8 * (3 * i + 1)));
  }
}

TEST(SampleLoaderTest, TheMemoryOfBatchesIsUsedAgain) {
  for (const int workers : {0, 1, 2}) {
    std::set<const void*> places;
    Loader loader(std::make_shared<Rows>(), batches_of(8), 0, 200, {.workers = workers, .prefetch = 3});
    for (std::int64_t k = 0; k < 200; ++k) places.insert(loader.next().input().const_data_ptr());
    EXPECT_LE(places.size(), 4U) << "prefetch + 1";
  }
}

// A change that is done to a tensor of a batch in place is not seen by the next batch.
TEST(SampleLoaderTest, ChangesOfABatchEndWithIt) {
  Loader loader(std::make_shared<Rows>(), batches_of(4), 0, 20, {.workers = 1, .prefetch = 1});
  for (std::int64_t k = 0; k < 20; ++k) {
    const batch::Batch batch = loader.next();
    expect_rows(batch, 4 * k);
    EXPECT_FALSE(batch.input().requires_grad());
    EXPECT_EQ(batch.input().dim(), 2);
    batch.input().requires_grad_(true);
    batch.target().unsqueeze_(1);
  }
}

/// Heap allocations per batch, after some batches.
std::int64_t allocations_of(std::int64_t batch_size, int workers) {
  Loader loader(std::make_shared<Rows>(), batches_of(batch_size), 0, 60, {.workers = workers, .prefetch = 1});
  for (int k = 0; k < 20; ++k) {
    const batch::Batch held = loader.next();
    std::this_thread::sleep_for(milliseconds(5));  // the next batch is loaded to another buffer
  }
  const std::int64_t before = allocation_count;
  for (int k = 0; k < 30; ++k) loader.next();
  std::this_thread::sleep_for(milliseconds(20));
  return (allocation_count - before) / 30;
}

TEST(SampleLoaderTest, SamplesNeedNoAllocation) {
  for (const int workers : {0, 1}) {
    const std::int64_t of_few = allocations_of(64, workers);
    const std::int64_t of_many = allocations_of(512, workers);
    EXPECT_GT(of_few, 0) << "the count works";
    // Batches need a few allocations, and the plan of this test three more to reach 512 elements.
    EXPECT_LE(of_many - of_few, 4) << of_few << " and " << of_many << " allocations per batch";
  }
}

/// Adds a text to some samples, or does what it must not do.
class Extra : public Rows {
 public:
  void fill(const batch::Draw& draw, batch::ValueMap& row) const override {
    Rows::fill(draw, row);
    row["name"] = "sample " + std::to_string(draw.index);
    if (draw.index == bad) row["data"] = at::empty({kWidth});
    if (draw.index == failing) throw std::runtime_error("no JPEG");
  }
  std::int64_t bad = -1;
  std::int64_t failing = -1;
};

TEST(SampleLoaderTest, ValuesBesideTheLayoutAreCollated) {
  Loader loader(std::make_shared<Extra>(), batches_of(3), 0, 30, {.workers = 2, .prefetch = 2});
  for (std::int64_t k = 0; k < 30; ++k) {
    const batch::Batch batch = loader.next();
    expect_rows(batch, 3 * k);
    EXPECT_EQ(batch.at("name").as<batch::ValueList>()[2].as<std::string>(), "sample " + std::to_string(3 * k + 2));
  }
}

TEST(SampleLoaderTest, AnErrorStatesTheSampleAndLaterBatchesAreRight) {
  for (const int workers : {0, 1, 3}) {
    const auto extra = std::make_shared<Extra>();
    extra->bad = 4;
    extra->failing = 7;
    Loader loader(extra, batches_of(3), 0, 30, {.workers = workers, .prefetch = 2, .name = "the training data"});
    loader.next();
    EXPECT_EQ(sentence_of<DataError>([&] { loader.next(); }),
              "sample 4 of the training data: fill must write to the tensor 'data' that it receives, not replace it");
    EXPECT_EQ(sentence_of<DataError>([&] { loader.next(); }), "sample 7 of the training data: no JPEG");
    for (std::int64_t k = 3; k < 30; ++k) expect_rows(loader.next(), 3 * k);
  }
}

TEST(SampleLoaderTest, TheFirstOfSeveralErrorsIsReported) {
  class Bad : public Rows {
   public:
    void fill(const batch::Draw& draw, batch::ValueMap&) const override {
      if (draw.index < 20) std::this_thread::sleep_for(milliseconds(5));
      if (draw.index > 9) throw DataError("it is bad");
    }
  };
  for (const int workers : {0, 1, 4}) {
    Loader loader(std::make_shared<Bad>(), batches_of(64), 0, 1, {.workers = workers});
    EXPECT_EQ(sentence_of<DataError>([&] { loader.next(); }), "sample 10 of the data set: it is bad");
  }
}

TEST(SampleLoaderTest, RolesOfAWrappedDataSet) {
  const auto wrapped = with_roles(std::make_shared<Rows>(), {.inputs = {"data"}, .targets = {"data"}});
  ASSERT_NE(ability_of<SampleDataset>(*wrapped), nullptr);
  Loader loader(wrapped, batches_of(2), 0, 2, {.workers = 2});
  const batch::Batch batch = loader.next();
  EXPECT_EQ(batch.target_key(), "data");
}

/// Records what is requested in advance.
class Ahead : public Rows, public SampleFiles {
 public:
  std::string place(const batch::Draw&) const override { return ""; }
  void read_ahead(const batch::Draw& draw) const override {
    const std::lock_guard lock(mutex);
    requested.push_back(draw.index);
    if (draw.index == bad) throw std::runtime_error("gone");
  }
  void fill(const batch::Draw& draw, batch::ValueMap& row) const override {
    {
      const std::lock_guard lock(mutex);
      max_lead = std::max(max_lead, std::ssize(requested) - draw.index);
    }
    Rows::fill(draw, row);
  }
  mutable std::mutex mutex;
  mutable std::vector<std::int64_t> requested;
  mutable std::int64_t max_lead = 0;
  std::int64_t bad = -1;
};

TEST(SampleLoaderTest, FilesOfTheNextBatchesAreRequestedOnceAndInOrder) {
  for (const int workers : {0, 1, 3}) {
    const auto ahead = std::make_shared<Ahead>();
    ahead->bad = 21;
    {
      Loader loader(ahead, batches_of(4), 0, 10, {.workers = workers, .prefetch = 2, .read_ahead = 2});
      for (std::int64_t k = 0; k < 10; ++k) expect_rows(loader.next(), 4 * k);
    }
    // An error ends only the requests for its batch.
    std::vector<std::int64_t> expected;
    for (std::int64_t i = 4; i < 40; ++i) {
      if (i != 22 && i != 23) expected.push_back(i);
    }
    EXPECT_EQ(ahead->requested, expected);
    EXPECT_LE(ahead->max_lead, 4 * 3);
  }
}

TEST(SampleLoaderTest, AStallIsReportedOnceWithItsSample) {
  class Slow : public Rows, public SampleFiles {
   public:
    void fill(const batch::Draw& draw, batch::ValueMap& row) const override {
      if (draw.index == 2) std::this_thread::sleep_for(milliseconds(300));
      Rows::fill(draw, row);
    }
    void read_ahead(const batch::Draw&) const override {}
    std::string place(const batch::Draw& draw) const override { return "photo" + std::to_string(draw.index) + ".jpg"; }
  };
  std::vector<std::string> warnings;
  const auto warn = [&](const std::string& text) { warnings.push_back(text); };
  Loader loader(std::make_shared<Slow>(), batches_of(2), 0, 4,
                {.workers = 1, .prefetch = 1, .name = "the training data", .stall_seconds = 0.05, .warn = warn});
  for (std::int64_t k = 0; k < 4; ++k) expect_rows(loader.next(), 2 * k);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_EQ(warnings[0],
            "the training data: no sample has arrived for 0 s; still loading sample 2 (photo2.jpg). Check that the "
            "file system responds");
}

TEST(SampleLoaderTest, StopsWhileSamplesAreLoaded) {
  class Busy : public Rows {
   public:
    void fill(const batch::Draw& draw, batch::ValueMap& row) const override {
      std::this_thread::sleep_for(milliseconds(2));
      Rows::fill(draw, row);
    }
  };
  const auto start = std::chrono::steady_clock::now();
  for (const int take : {0, 1}) {
    Loader loader(std::make_shared<Busy>(), batches_of(take == 0 ? 10'000 : 4), 0, 100, {.workers = 3, .prefetch = 2});
    for (int i = 0; i < take; ++i) loader.next();
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(SampleLoaderTest, MeasuresTheWorkOfAllThreads) {
  class Slow : public Rows {
   public:
    void fill(const batch::Draw& draw, batch::ValueMap& row) const override {
      std::this_thread::sleep_for(milliseconds(10));
      Rows::fill(draw, row);
    }
  };
  for (const int workers : {0, 1, 4}) {
    Loader loader(std::make_shared<Slow>(), batches_of(8), 0, 1, {.workers = workers});
    loader.next();
    EXPECT_GE(loader.work_seconds(), 0.08) << workers;
    EXPECT_LT(loader.work_seconds(), 0.8) << workers;
  }
}

}  // namespace sample_loader_test
}  // namespace lockstep::data
