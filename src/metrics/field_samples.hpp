// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "metrics/meter_rows.hpp"
#include "metrics/numbers/fields.hpp"

// What the meters of fields [N, C, space...] share: samples divided into channels, sums over samples, and the names of
// results by channel.
namespace lockstep::metrics {

constexpr const char* kMask = "mask";  ///< the field of a batch that tells which points count

/// The channels of a task. Channels of several steps follow one another; those of one name are measured together.
struct FieldChannels {
  std::vector<std::string> names;  ///< names of the channels of one step
  std::vector<std::string> units;  ///< their units; "" = unknown
  std::size_t count = 0;           ///< number of channels of all steps

  /// @throws ConfigError  the number of names does not divide that of channels
  static FieldChannels of(const Task& task);
};

/// One channel of a sample.
struct ChannelOfSample {
  std::size_t sample = 0;
  std::size_t channel = 0;  ///< number among the channels of all steps
  ChannelPair pair = {};
  std::span<const double> climatology = {};  ///< empty unless it is read
};

/// Divides samples into channels, and weighs their points.
class FieldSamples {
 public:
  /// @param meter  its name, for messages
  /// @throws ConfigError  as FieldChannels
  FieldSamples(std::string meter, const Task& task, std::optional<RowWeights> rows = {});

  const FieldChannels& channels() const noexcept { return channels_; }
  /// The place of a channel's name.
  std::size_t name_of(std::size_t channel) const { return channel % channels_.names.size(); }

  /// @param climatology  a name in Reads::fields; empty = none
  /// @throws DataError  the samples have other channels or rows
  void for_each(const Samples& samples, const std::function<void(const ChannelOfSample&)>& visit,
                const std::string& climatology = {}) const;

 private:
  void require_fit(const Samples& samples) const;
  /// The weight of each point of a channel; empty = 1 for all.
  std::vector<double> area_of(const Samples& samples) const;

  std::string meter_;
  FieldChannels channels_;
  std::optional<RowWeights> rows_;
};

/// The sums and maxima of a meter; maxima are of numbers >= 0.
struct FieldTotals {
  std::vector<ExactSum> sums;
  std::vector<double> maxima;

  void add_max(std::size_t i, double value);
};

/// A meter of sums and maxima.
/// @param sums    number of sums
/// @param maxima  number of maxima
Meter meter_of_totals(std::vector<Result> results, std::size_t sums, std::size_t maxima,
                      std::function<void(const Samples&, FieldTotals&)> add,
                      std::function<std::vector<double>(const FieldTotals&)> read);

/// Means of numbers over samples, by channel: a count and the sum of each number, one channel name after the other.
class ChannelMeans {
 public:
  ChannelMeans(std::size_t names, std::size_t numbers) : names_(names), numbers_(numbers) {}

  std::size_t sums() const noexcept { return names_ * (numbers_ + 1); }
  void add(FieldTotals& totals, std::size_t name, std::span<const double> numbers) const;
  /// NaN where nothing was added.
  double mean(const FieldTotals& totals, std::size_t name, std::size_t number) const {
    return mean_over(totals, name, name + 1, number);
  }
  double mean(const FieldTotals& totals, std::size_t number) const { return mean_over(totals, 0, names_, number); }

 private:
  double mean_over(const FieldTotals& totals, std::size_t begin, std::size_t end, std::size_t number) const;

  std::size_t names_;
  std::size_t numbers_;
};

/// "rmse/z500", or "rmse@3/z500" for the channel z500@3 of a later step.
std::string result_name(const std::string& number, const std::string& channel);
/// Results named NUMBER/CHANNEL without a unit, one number after the other.
std::vector<Result> results_of_channels(const std::vector<std::string>& numbers, const FieldChannels& channels,
                                        bool is_higher_better = false);
/// The same of errors, which have the units of their channels.
std::vector<Result> errors_of_channels(const std::vector<std::string>& numbers, const FieldChannels& channels);
/// Results of all channels together, and then those of each.
std::vector<Result> with_channels(const std::vector<std::string>& numbers,
                                  const std::vector<std::vector<Result>>& of_channels);

}  // namespace lockstep::metrics
