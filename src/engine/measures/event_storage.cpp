// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/engine/event_storage.hpp>

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace lockstep::engine {

namespace {

template <class Kept>
void keep(std::vector<Kept>& kept, Kept value, const std::string& prefix, std::int64_t step, std::size_t max) {
  if (max == 0) return;
  value.name = prefix + value.name;
  value.step = step;
  if (kept.size() == max) kept.erase(kept.begin());
  kept.push_back(std::move(value));
}

/// @throws ConfigError  the value has no name of its own
void require_own_name(const std::string& name, const std::string& owner, const std::string& known_owner) {
  if (name.empty()) throw ConfigError("a hook, step or model of this program puts a value without a name");
  if (owner == known_owner) return;
  throw ConfigError("a hook, step or model of this program puts a value named '" + name +
                    "', which is the name of a value of Lockstep's hook '" + (owner.empty() ? known_owner : owner) +
                    "'; choose another name");
}

}  // namespace

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

EventStorage::Scope::Scope(EventStorage& storage, const std::string& name)
    : storage_(&storage), length_(storage.prefix_.size()) {
  const std::size_t end = name.find_last_not_of('/');
  if (end != std::string::npos) storage.prefix_ += name.substr(0, end + 1) + "/";
}

void EventStorage::put(const std::string& name, double value, const ScalarOptions& options) {
  const std::string full = prefix_ + name;
  const auto found = index_.find(full);
  require_own_name(name, options.owner, found == index_.end() ? options.owner : series_[found->second].owner);
  const History::HistoryEntry entry{.value = value, .step = options.step.value_or(step_), .count = options.count};
  if (found == index_.end()) {
    ValueSeries series{.name = full,
                       .owner = options.owner,
                       .is_smoothed = options.is_smoothed.value_or(true),
                       .last_put = ++puts_,
                       .history = History()};
    series.history.add(entry);
    index_.emplace(full, series_.size());
    series_.push_back(std::move(series));
    return;
  }
  ValueSeries& series = series_[found->second];
  if (options.is_smoothed && *options.is_smoothed != series.is_smoothed) {
    throw std::logic_error("EventStorage: '" + full + "' is already a series that is " +
                           (series.is_smoothed ? "smoothed" : "not smoothed"));
  }
  series.history.add(entry);
  series.last_put = ++puts_;
}

void EventStorage::put_of_rank(const std::string& name, double value, const std::string& owner) {
  const std::string full = prefix_ + name;
  auto found = std::ranges::find(rank_means_, full, &Mean::name);
  require_own_name(name, owner, found == rank_means_.end() ? owner : found->owner);
  if (found == rank_means_.end()) found = rank_means_.insert(found, Mean{.name = full, .owner = owner});
  found->sum += value;
  ++found->count;
}

std::vector<std::pair<std::string, double>> EventStorage::take_rank_means() {
  std::vector<std::pair<std::string, double>> means;
  for (Mean& mean : rank_means_) {
    if (mean.count == 0) continue;
    means.emplace_back(mean.name, mean.sum / static_cast<double>(mean.count));
    mean.sum = 0;
    mean.count = 0;
  }
  return means;
}

void EventStorage::put(Picture image) { keep(images_, std::move(image), prefix_, step_, max_pictures_); }

void EventStorage::put(Histogram histogram) { keep(histograms_, std::move(histogram), prefix_, step_, max_pictures_); }

void EventStorage::put(Table table) { keep(tables_, std::move(table), prefix_, step_, max_pictures_); }

const History& EventStorage::history(const std::string& name) const {
  const auto found = index_.find(name);
  if (found == index_.end()) throw std::out_of_range("EventStorage: unknown name '" + name + "'");
  return series_[found->second].history;
}

std::vector<Scalar> EventStorage::updates_since(std::size_t& cursor, std::int64_t window) const {
  return latest_since(std::exchange(cursor, puts_), window);
}

std::vector<Scalar> EventStorage::latest_since(std::size_t put, std::int64_t window) const {
  std::vector<Scalar> latest;
  for (const ValueSeries& series : series_) {
    if (series.last_put <= put) continue;
    const History& history = series.history;
    const double value = series.is_smoothed ? history.median(std::max<std::size_t>(1, history.count_within(window)))
                                            : history.latest().value;
    latest.push_back({.name = series.name, .value = value, .step = history.latest().step});
  }
  return latest;
}

}  // namespace lockstep::engine
