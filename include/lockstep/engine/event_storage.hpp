// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/measurements.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::engine {

/// The values of one metric in order of arrival: the latest `longest` values, and the mean of all values. A window is a
/// number of latest values; if there are fewer, all are used.
class History {
 public:
  struct HistoryEntry {
    double value = 0;  ///< sum over `count` samples
    std::int64_t step = 0;
    std::int64_t count = 1;
  };
  static constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

  /// @throws std::invalid_argument  longest is 0
  explicit History(std::size_t longest = 1'000'000);

  /// @throws std::invalid_argument  count < 1
  void add(const HistoryEntry& entry);

  std::size_t size() const noexcept { return entries_.size(); }  ///< number of stored values
  /// The i-th stored value, oldest first.
  /// @throws std::out_of_range  i >= size()
  const HistoryEntry& at(std::size_t i) const;
  const HistoryEntry& latest() const { return at(size() - 1); }

  // All of these throw std::out_of_range if there are no values, and std::invalid_argument for a window of 0.
  double median(std::size_t window) const;  ///< the mean of the middle two if their number is even
  double mean(std::size_t window) const;    ///< mean over samples: sum of values / sum of counts
  double min(std::size_t window) const;
  double max(std::size_t window) const;
  /// The mean of all values, including those that are no longer stored.
  double mean_of_all() const;

  /// The number of values in the last `steps` steps up to the step of the latest value.
  std::size_t count_within(std::int64_t steps) const noexcept;

 private:
  std::vector<double> values(std::size_t window) const;

  std::size_t longest_;
  std::vector<HistoryEntry> entries_;  // a ring buffer when it is full
  std::size_t oldest_ = 0;
  double sum_ = 0;
  double lost_ = 0;  // compensation of rounding errors in sum_
  std::int64_t count_ = 0;
};

/// Options of a scalar value.
struct ScalarOptions {
  /// Whether the series is displayed as a median over a window. The first value of the series decides; default true.
  std::optional<bool> is_smoothed = {};
  std::optional<std::int64_t> step = {};  ///< step of the value; default: the current step
  std::int64_t count = 1;                 ///< number of samples in the sum
  /// The hook of Lockstep that puts the values; empty = a part of a program. A series has one owner.
  std::string owner = {};
};

/// A value of a series for writers.
struct Scalar {
  std::string name;
  double value = 0;
  std::int64_t step = 0;
};

/// The storage of measurements of one rank. Hooks and steps put values into it; writers read them. Not thread-safe.
class EventStorage {
 public:
  /// Sets the step of the values that follow.
  void set_step(std::int64_t step) noexcept { step_ = step; }
  std::int64_t step() const noexcept { return step_; }

  /// @throws ConfigError            the name is empty, or is a series of another owner; nothing is stored then
  /// @throws std::logic_error       the series has another value of is_smoothed; nothing is stored then
  /// @throws std::invalid_argument  count < 1
  void put(const std::string& name, double value, const ScalarOptions& options = {});
  /// A value that differs between ranks. The log shows mean, minimum and maximum over ranks, see rank_events_hook.
  /// @param owner  see ScalarOptions
  /// @throws ConfigError  the name is empty, or that of values of another owner
  void put_of_rank(const std::string& name, double value, const std::string& owner = {});
  /// The mean of each such value since the previous call, in order of first use; only values that were put since then.
  std::vector<std::pair<std::string, double>> take_rank_means();
  /// Images and tables are stored only if a writer has called keep_pictures.
  void put(Picture image);
  void put(Histogram histogram);
  void put(Table table);
  /// @param max  maximum number of each kind between two calls of take_*; older ones are discarded
  void keep_pictures(std::size_t max) noexcept { max_pictures_ = max; }
  bool keeps_pictures() const noexcept { return max_pictures_ > 0; }
  std::vector<Picture> take_images() { return std::exchange(images_, {}); }
  std::vector<Table> take_tables() { return std::exchange(tables_, {}); }
  std::vector<Histogram> take_histograms() { return std::exchange(histograms_, {}); }

  /// During its lifetime, names of new values start with "NAME/". Scopes can be nested.
  class Scope {
   public:
    ~Scope() { storage_->prefix_.resize(length_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    friend class EventStorage;
    Scope(EventStorage& storage, const std::string& name);

    EventStorage* storage_;
    std::size_t length_;  // length of the prefix before this scope
  };
  [[nodiscard]] Scope scope(const std::string& name) { return {*this, name}; }

  /// @throws std::out_of_range  the series does not exist
  const History& history(const std::string& name) const;
  /// Every series in order of first use: smoothed series as the median over the last `window` steps up to their latest
  /// value, others as their latest value.
  std::vector<Scalar> latest(std::int64_t window) const { return latest_since(0, window); }
  /// Only series with new values since the previous call with this cursor, whatever the steps of the values.
  /// @param cursor  state of the writer; 0 before the first call
  std::vector<Scalar> updates_since(std::size_t& cursor, std::int64_t window) const;

 private:
  struct ValueSeries {
    std::string name;
    std::string owner;
    bool is_smoothed = true;
    std::size_t last_put = 0;  // its number among all values
    History history;
  };
  std::vector<Scalar> latest_since(std::size_t put, std::int64_t window) const;

  std::int64_t step_ = 0;
  std::string prefix_;
  std::size_t puts_ = 0;
  std::vector<ValueSeries> series_;
  std::map<std::string, std::size_t> index_;
  struct Mean {
    std::string name;
    std::string owner;
    double sum = 0;
    std::int64_t count = 0;
  };
  std::vector<Mean> rank_means_;
  std::size_t max_pictures_ = 0;
  std::vector<Picture> images_;
  std::vector<Histogram> histograms_;
  std::vector<Table> tables_;
};

}  // namespace lockstep::engine
