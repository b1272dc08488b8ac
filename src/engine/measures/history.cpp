// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/engine/event_storage.hpp>

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace lockstep::engine {

History::History(std::size_t longest) : longest_(longest) {
  if (longest == 0) throw std::invalid_argument("History: longest must be at least 1");
}

void History::add(const HistoryEntry& entry) {
  if (entry.count < 1) throw std::invalid_argument("History::add: count must be at least 1");
  if (size() < longest_) {
    entries_.push_back(entry);
  } else {
    entries_[oldest_] = entry;
    oldest_ = (oldest_ + 1) % longest_;
  }
  // Kahan's compensated sum.
  const double next = entry.value - lost_;
  const double sum = sum_ + next;
  lost_ = (sum - sum_) - next;
  sum_ = sum;
  count_ += entry.count;
}

const History::HistoryEntry& History::at(std::size_t i) const {
  if (i >= size()) throw std::out_of_range("History: the index is out of range");
  return entries_[(oldest_ + i) % size()];
}

/// The latest `window` of them, oldest first.
std::vector<double> History::values(std::size_t window) const {
  if (window == 0) throw std::invalid_argument("History: a window must contain at least 1 value");
  if (size() == 0) throw std::out_of_range("History: it is empty");
  std::vector<double> values;
  for (std::size_t i = size() - std::min(window, size()); i < size(); ++i) values.push_back(at(i).value);
  return values;
}

double History::median(std::size_t window) const {
  std::vector<double> sorted = values(window);
  std::sort(sorted.begin(), sorted.end());
  const std::size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

double History::mean(std::size_t window) const {
  const std::vector<double> recent = values(window);
  std::int64_t count = 0;
  for (std::size_t i = size() - recent.size(); i < size(); ++i) count += at(i).count;
  return std::accumulate(recent.begin(), recent.end(), 0.0) / static_cast<double>(count);
}

double History::min(std::size_t window) const {
  const std::vector<double> recent = values(window);
  return *std::min_element(recent.begin(), recent.end());
}

double History::max(std::size_t window) const {
  const std::vector<double> recent = values(window);
  return *std::max_element(recent.begin(), recent.end());
}

double History::mean_of_all() const {
  if (count_ == 0) throw std::out_of_range("History: it is empty");
  return sum_ / static_cast<double>(count_);
}

std::size_t History::count_within(std::int64_t steps) const noexcept {
  std::size_t count = 0;
  while (count < size() && at(size() - 1 - count).step > latest().step - steps) ++count;
  return count;
}

}  // namespace lockstep::engine
