// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/metrics/meter.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

// The counts and sums of a meter as words. A class with a function `visit_words(visit)` calls `visit` for each of them,
// always in the same order.
namespace lockstep::metrics {

/// Counts the words of what it visits.
class WordCounter {
 public:
  void operator()(std::int64_t&) { ++count_; }
  void operator()(ExactSum&) { count_ += ExactSum::kWords; }
  std::size_t count() const noexcept { return count_; }

 private:
  std::size_t count_ = 0;
};

/// Copies words to what it visits.
class WordReader {
 public:
  explicit WordReader(std::span<const std::int64_t> words) : words_(words) {}
  void operator()(std::int64_t& count) { count = take(1).front(); }
  void operator()(ExactSum& sum) { sum = ExactSum(take(ExactSum::kWords)); }

 private:
  std::span<const std::int64_t> take(std::size_t count) {
    return std::exchange(words_, words_.subspan(count)).first(count);
  }

  std::span<const std::int64_t> words_;
};

/// Copies what it visits to words.
class WordWriter {
 public:
  explicit WordWriter(std::span<std::int64_t> words) : words_(words) {}
  void operator()(std::int64_t& count) { take(1).front() = count; }
  void operator()(ExactSum& sum) { sum.store(take(ExactSum::kWords)); }

 private:
  std::span<std::int64_t> take(std::size_t count) { return std::exchange(words_, words_.subspan(count)).first(count); }

  std::span<std::int64_t> words_;
};

}  // namespace lockstep::metrics
