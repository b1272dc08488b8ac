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

/// The values of one metric in the order in which they came: the last `longest` of them, and the mean of all there
/// were. A window is a number of latest values; of fewer there are, all.
class History {
 public:
  struct Entry {
    double value = 0;  ///< of `count` samples together: their sum
    std::int64_t step = 0;
    std::int64_t count = 1;
  };
  static constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

  /// @throws std::invalid_argument  longest is 0
  explicit History(std::size_t longest = 1'000'000);

  /// @throws std::invalid_argument  count < 1
  void add(const Entry& entry);

  std::size_t size() const noexcept { return entries_.size(); }  ///< what is kept
  /// The i-th of what is kept, oldest first.
  /// @throws std::out_of_range  there are fewer
  const Entry& at(std::size_t i) const;
  const Entry& latest() const { return at(size() - 1); }

  // All of these throw std::out_of_range where there is no value, and std::invalid_argument for a window of 0.
  double median(std::size_t window) const;  ///< of an even number of values: the mean of the middle two
  double mean(std::size_t window) const;    ///< of samples: the sum of values by the sum of counts
  double min(std::size_t window) const;
  double max(std::size_t window) const;
  /// Of all values there were, the forgotten ones among them.
  double mean_of_all() const;

  /// How many of the latest values came in the last `steps` steps up to the latest value's own.
  std::size_t count_within(std::int64_t steps) const noexcept;

 private:
  std::vector<double> values(std::size_t window) const;

  std::size_t longest_;
  std::vector<Entry> entries_;  // a ring once it is full
  std::size_t oldest_ = 0;
  double sum_ = 0;
  double lost_ = 0;  // what rounding took from sum_
  std::int64_t count_ = 0;
};

/// What else a scalar is put with.
struct ScalarOptions {
  /// Shown as a median over a window. The first put decides, with true if left out.
  std::optional<bool> is_smoothed = {};
  std::optional<std::int64_t> step = {};  ///< to which it belongs; the storage's own if left out
  std::int64_t count = 1;                 ///< samples of which the value is the sum
};

/// A series as writers show it.
struct Scalar {
  std::string name;
  double value = 0;
  std::int64_t step = 0;
};

/// Where hooks and steps leave what they measure, and writers find it. Of one rank; not for several threads.
class EventStorage {
 public:
  /// Of what is put from now on.
  void set_step(std::int64_t step) noexcept { step_ = step; }
  std::int64_t step() const noexcept { return step_; }

  /// @throws std::logic_error       the series was begun with another is_smoothed; nothing is put then
  /// @throws std::invalid_argument  count < 1
  void put(const std::string& name, double value, const ScalarOptions& options = {});
  /// A number of which every rank has its own: brought together at every line of the log, see rank_events_hook.
  void put_of_rank(const std::string& name, double value);
  /// The mean of each since the last visit, in order of first mention; those alone that were put since then.
  std::vector<std::pair<std::string, double>> take_rank_means();
  /// For writers of images and tables, which say by keep_pictures that they are there: without one, none is kept.
  void put(Image image);
  void put(Histogram histogram);
  void put(Table table);
  /// @param most  of each kind, between two visits; older ones are dropped then
  void keep_pictures(std::size_t max) noexcept { max_pictures_ = max; }
  bool keeps_pictures() const noexcept { return max_pictures_ > 0; }
  std::vector<Image> take_images() { return std::exchange(images_, {}); }
  std::vector<Table> take_tables() { return std::exchange(tables_, {}); }
  std::vector<Histogram> take_histograms() { return std::exchange(histograms_, {}); }

  /// Puts "NAME/" before the names of what is put as long as it lives; inside another, after its name.
  class Scope {
   public:
    ~Scope() { storage_->prefix_.resize(length_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    friend class EventStorage;
    Scope(EventStorage& storage, const std::string& name);

    EventStorage* storage_;
    std::size_t length_;  // of the prefix before
  };
  [[nodiscard]] Scope scope(const std::string& name) { return {*this, name}; }

  /// @throws std::out_of_range  names the series that there is not
  const History& history(const std::string& name) const;
  /// Every series in order of first mention: smoothed ones as the median of what came in the last `window` steps up to
  /// their latest value's, others as their latest value.
  std::vector<Scalar> latest(std::int64_t window) const { return latest_since(0, window); }
  /// Those alone that were put since the last call with this cursor, however old the steps are that they belong to.
  /// @param cursor  a writer's own; 0 at first
  std::vector<Scalar> updates_since(std::size_t& cursor, std::int64_t window) const;

 private:
  struct Series {
    std::string name;
    bool is_smoothed = true;
    std::size_t last_put = 0;  // its number among all puts
    History history;
  };
  std::vector<Scalar> latest_since(std::size_t put, std::int64_t window) const;

  std::int64_t step_ = 0;
  std::string prefix_;
  std::size_t puts_ = 0;
  std::vector<Series> series_;
  std::map<std::string, std::size_t> index_;
  struct Mean {
    std::string name;
    double sum = 0;
    std::int64_t count = 0;
  };
  std::vector<Mean> rank_means_;
  std::size_t max_pictures_ = 0;
  std::vector<Image> images_;
  std::vector<Histogram> histograms_;
  std::vector<Table> tables_;
};

}  // namespace lockstep::engine
