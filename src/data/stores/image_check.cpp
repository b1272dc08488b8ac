// SPDX-License-Identifier: BSD-3-Clause
#include "data/stores/image_check.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>

#include "core/system/in_threads.hpp"
#include "core/system/processors.hpp"
#include "log/progress.hpp"

namespace lockstep::data {

namespace {

constexpr std::int64_t kSpread = 17;

void check_one(const ImageDataset& dataset, std::int64_t index) {
  dataset.sample({.index = index, .epoch = 0, .position = index});
}

}  // namespace

void check_some(const ImageDataset& dataset) {
  const std::int64_t size = dataset.size();
  const std::int64_t count = std::min(kSpread, size);
  for (std::int64_t i = 0; i < count; ++i) {
    check_one(dataset, count == 1 ? 0 : (size - 1) / (count - 1) * i + (size - 1) % (count - 1) * i / (count - 1));
  }
}

void check_all(const ImageDataset& dataset, const std::string& name) {
  std::atomic<std::int64_t> next = 0;
  std::mutex mutex;
  std::map<std::int64_t, std::string> faults;
  log::ProgressLine progress;
  const int threads = usable_processors();
  in_threads(threads, [&](int thread) {
    for (std::int64_t i = next++; i < dataset.size(); i = next++) {
      try {
        check_one(dataset, i);
      } catch (const DataError& error) {
        const std::scoped_lock lock(mutex);
        faults.emplace(i, error.what());
      }
      if (thread == 0 && i % 64 < threads) {
        progress.show("checking " + name + ": " + std::to_string(i) + " of " + std::to_string(dataset.size()));
      }
    }
  });
  if (faults.empty()) return;
  const std::string& first = faults.begin()->second;
  if (faults.size() == 1) throw DataError(first);
  throw DataError(first + " (the first of " + std::to_string(faults.size()) + " images that cannot be read)");
}

}  // namespace lockstep::data
