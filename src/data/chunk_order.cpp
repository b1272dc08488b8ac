// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/random/random.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "data/order.hpp"

namespace lockstep::data {

namespace {

/// The purpose of the random numbers of a window, beside those of class_orders.cpp. Part of the checkpoint contract.
constexpr std::uint64_t kWindowDraws = std::uint64_t{4} << 56;

/// Samples by chunk. A window is `chunks_per_window` chunks that follow one another in the order of an epoch.
class ChunkWindows {
 public:
  ChunkWindows(std::span<const std::int64_t> chunks, std::int64_t chunks_per_window, std::uint64_t seed)
      : samples_(chunks.size()), chunks_per_window_(chunks_per_window), seed_(seed) {
    std::iota(samples_.begin(), samples_.end(), 0);
    const auto chunk_of = [&](std::int64_t sample) { return chunks[static_cast<std::size_t>(sample)]; };
    std::ranges::stable_sort(samples_, {}, chunk_of);
    for (std::size_t i = 0; i < samples_.size(); ++i) {
      if (i == 0 || chunk_of(samples_[i]) != chunk_of(samples_[i - 1])) begins_.push_back(static_cast<std::int64_t>(i));
    }
    begins_.push_back(std::ssize(samples_));
  }

  std::int64_t samples() const { return std::ssize(samples_); }
  std::int64_t windows() const { return (chunks() + chunks_per_window_ - 1) / chunks_per_window_; }

  /// Positions after the last one of each window of an epoch.
  IndexList ends(std::int64_t epoch) const {
    const random::Permutation order = chunk_order_of(epoch);
    IndexList ends;
    std::int64_t end = 0;
    for (std::int64_t i = 0; i < chunks(); ++i) {
      end += std::ssize(chunk(order, i));
      if ((i + 1) % chunks_per_window_ == 0 || i + 1 == chunks()) ends.push_back(end);
    }
    return ends;
  }

  /// The samples of a window, in the order in which an epoch has them.
  IndexList shuffled(std::int64_t epoch, std::int64_t window) const {
    const random::Permutation order = chunk_order_of(epoch);
    IndexList all;
    const std::int64_t first = window * chunks_per_window_;
    for (std::int64_t i = first; i < std::min(first + chunks_per_window_, chunks()); ++i) {
      const auto samples = chunk(order, i);
      all.insert(all.end(), samples.begin(), samples.end());
    }
    const std::uint64_t key = random::bits(seed_, random::Stream::order, static_cast<std::uint64_t>(epoch),
                                           kWindowDraws + static_cast<std::uint64_t>(window));
    const random::Permutation inside(all.size(), key);
    IndexList result(all.size());
    for (std::size_t i = 0; i < all.size(); ++i) result[i] = all[static_cast<std::size_t>(inside(i))];
    return result;
  }

 private:
  std::int64_t chunks() const { return std::ssize(begins_) - 1; }

  random::Permutation chunk_order_of(std::int64_t epoch) const {
    const std::uint64_t key = random::bits(seed_, random::Stream::order, static_cast<std::uint64_t>(epoch));
    return {static_cast<std::uint64_t>(chunks()), key};
  }

  /// The samples of the chunk at a position of an epoch.
  std::span<const std::int64_t> chunk(const random::Permutation& order, std::int64_t position) const {
    const auto number = static_cast<std::size_t>(order(static_cast<std::uint64_t>(position)));
    const auto begin = static_cast<std::size_t>(begins_[number]), end = static_cast<std::size_t>(begins_[number + 1]);
    return std::span(samples_).subspan(begin, end - begin);
  }

  IndexList samples_;  ///< chunk by chunk
  IndexList begins_;   ///< positions in `samples_` of each chunk, and their number
  std::int64_t chunks_per_window_;
  std::uint64_t seed_;
};

}  // namespace

OrderPtr chunk_order(std::span<const std::int64_t> chunks, std::int64_t chunks_per_window, std::uint64_t seed) {
  if (chunks_per_window < 1) throw std::invalid_argument("chunk_order: chunks_per_window must be at least 1");
  if (chunks.empty()) throw DataError("the training data have no samples");
  const auto windows = std::make_shared<const ChunkWindows>(chunks, chunks_per_window, seed);
  const OrderPtr ends =
      order_of_lists(windows->windows(), [windows](std::int64_t epoch) { return windows->ends(epoch); });
  return order_of(windows->samples(), [windows, ends](std::int64_t epoch, std::int64_t begin, std::int64_t count) {
    const auto end_of = [&](std::int64_t window) { return ends->indices(epoch, window, 1).front(); };
    IndexList indices;
    if (count == 0) return indices;
    std::int64_t window = 0;
    for (std::int64_t above = windows->windows() - 1; window < above;) {  // the first window that ends after `begin`
      const std::int64_t middle = window + (above - window) / 2;
      end_of(middle) > begin ? void(above = middle) : void(window = middle + 1);
    }
    for (; std::ssize(indices) < count; ++window) {
      const IndexList samples = windows->shuffled(epoch, window);
      const std::int64_t first = begin + std::ssize(indices) - (end_of(window) - std::ssize(samples));
      const std::int64_t taken = std::min(count - std::ssize(indices), std::ssize(samples) - first);
      indices.insert(indices.end(), samples.begin() + first, samples.begin() + first + taken);
    }
    return indices;
  });
}

}  // namespace lockstep::data
