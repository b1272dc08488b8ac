// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/engine/event_storage.hpp>

#include <algorithm>
#include <stdexcept>

namespace lockstep::engine {

namespace {

template <class Kept>
void keep(std::vector<Kept>& kept, Kept value, std::size_t max) {
  if (max == 0) return;
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
  auto found = std::find_if(rank_means_.begin(), rank_means_.end(), [&](const Mean& m) { return m.name == full; });
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

void EventStorage::put(Picture image) {
  image.name = prefix_ + image.name;
  image.step = step_;
  keep(images_, std::move(image), max_pictures_);
}

void EventStorage::put(Histogram histogram) {
  histogram.name = prefix_ + histogram.name;
  histogram.step = step_;
  keep(histograms_, std::move(histogram), max_pictures_);
}

void EventStorage::put(Table table) {
  table.name = prefix_ + table.name;
  table.step = step_;
  keep(tables_, std::move(table), max_pictures_);
}

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
