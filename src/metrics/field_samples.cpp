// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/field_samples.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>

namespace lockstep::metrics {

namespace {

std::vector<std::string> numbered(std::int64_t count) {
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < count; ++i) names.push_back(std::to_string(i));
  return names;
}

void add_mask(std::span<const double> mask, std::vector<double>& weights) {
  if (weights.empty()) weights.assign(mask.size(), 1);
  for (std::size_t i = 0; i < mask.size(); ++i) weights[i] = mask[i] == 0 ? 0 : weights[i];
}

}  // namespace

FieldChannels FieldChannels::of(const Task& task) {
  FieldChannels channels{.names = task.fields.channels, .units = task.fields.units};
  if (channels.names.empty()) channels.names = numbered(task.classes);
  channels.units.resize(channels.names.size());
  channels.count = task.classes > 0 ? static_cast<std::size_t>(task.classes) : channels.names.size();
  if (channels.count > 0 && channels.count % channels.names.size() == 0) return channels;
  throw ConfigError("the targets have " + std::to_string(task.classes) + " channels, but there are names for " +
                    std::to_string(channels.names.size()) + "; set the option classes");
}

FieldSamples::FieldSamples(std::string meter, const Task& task, std::optional<RowWeights> rows)
    : meter_(std::move(meter)), channels_(FieldChannels::of(task)), rows_(std::move(rows)) {}

void FieldSamples::for_each(const Samples& samples, const std::function<void(const ChannelOfSample&)>& visit,
                            const std::string& climatology) const {
  if (samples.size() == 0) return;
  require_fit(samples);
  const std::size_t points = samples.target_columns / channels_.count;
  const std::vector<double> area = area_of(samples);
  const auto mask = samples.fields.find(kMask);
  std::vector<double> weights;
  for (std::size_t sample = 0; sample < samples.size(); ++sample) {
    for (std::size_t channel = 0; channel < channels_.count; ++channel) {
      const std::size_t begin = sample * samples.target_columns + channel * points;
      const auto part = [&](const std::vector<double>& all) { return std::span(all).subspan(begin, points); };
      weights = area;
      if (mask != samples.fields.end()) add_mask(part(mask->second), weights);
      visit({.sample = sample,
             .channel = channel,
             .pair = {.prediction = part(samples.outputs), .target = part(samples.targets), .weights = weights},
             .climatology = climatology.empty() ? std::span<const double>() : part(samples.fields.at(climatology))});
    }
  }
}

void FieldSamples::require_fit(const Samples& samples) const {
  const auto channels = samples.shape.empty() ? samples.target_columns : static_cast<std::size_t>(samples.shape[0]);
  if (channels == channels_.count && samples.output_columns == samples.target_columns) return;
  throw DataError(meter_ + " needs outputs and targets [N, " + std::to_string(channels_.count) +
                  ", space...], not samples with " + std::to_string(samples.output_columns) + " outputs and " +
                  std::to_string(samples.target_columns) + " targets in " + std::to_string(channels) + " channels");
}

std::vector<double> FieldSamples::area_of(const Samples& samples) const {
  if (!rows_) return {};
  const std::size_t dim = rows_->axis + 1;
  const auto rows = rows_->weights.size();
  if (samples.shape.size() <= dim || static_cast<std::size_t>(samples.shape[dim]) != rows) {
    throw DataError(meter_ + ",area: the targets do not have " + std::to_string(rows) + " latitudes along axis " +
                    std::to_string(rows_->axis) + " of space; use area=false");
  }
  std::size_t stride = 1;
  for (std::size_t i = dim + 1; i < samples.shape.size(); ++i) stride *= static_cast<std::size_t>(samples.shape[i]);
  std::vector<double> area(samples.target_columns / channels_.count);
  for (std::size_t i = 0; i < area.size(); ++i) area[i] = rows_->weights[i / stride % rows];
  return area;
}

void FieldTotals::add_max(std::size_t i, double value) {
  if (std::isnan(value) || value > maxima[i]) maxima[i] = std::abs(value);
}

// The bits of doubles >= 0 are in the order of their values, and those of NaN are larger.
Meter meter_of_totals(std::vector<Result> results, std::size_t sums, std::size_t maxima,
                      std::function<void(const Samples&, FieldTotals&)> add,
                      std::function<std::vector<double>(const FieldTotals&)> read) {
  const auto loaded = [sums, maxima](std::span<const std::int64_t> words) {
    FieldTotals totals;
    for (std::size_t i = 0; i < sums; ++i)
      totals.sums.emplace_back(words.subspan(i * ExactSum::kWords, ExactSum::kWords));
    for (const std::int64_t word : words.last(maxima)) totals.maxima.push_back(std::bit_cast<double>(word));
    return totals;
  };
  return {.results = std::move(results),
          .words = sums * ExactSum::kWords + maxima,
          .maxima = maxima,
          .add =
              [loaded, maxima, add = std::move(add)](const Samples& samples, std::span<std::int64_t> words) {
                FieldTotals totals = loaded(words);
                add(samples, totals);
                for (std::size_t i = 0; i < totals.sums.size(); ++i) {
                  totals.sums[i].store(words.subspan(i * ExactSum::kWords, ExactSum::kWords));
                }
                std::ranges::transform(totals.maxima, words.last(maxima).begin(),
                                       [](double value) { return std::bit_cast<std::int64_t>(value); });
              },
          .read = [loaded, read = std::move(read)](
                      std::span<const std::int64_t> words) { return Reading{.numbers = read(loaded(words))}; }};
}

void ChannelMeans::add(FieldTotals& totals, std::size_t name, std::span<const double> numbers) const {
  ExactSum* const sums = &totals.sums[name * (numbers_ + 1)];
  sums[0].add(1);
  for (std::size_t i = 0; i < numbers.size(); ++i) sums[1 + i].add(numbers[i]);
}

double ChannelMeans::mean_over(const FieldTotals& totals, std::size_t begin, std::size_t end,
                               std::size_t number) const {
  ExactSum count;
  ExactSum sum;
  for (std::size_t name = begin; name < end; ++name) {
    count.add(totals.sums[name * (numbers_ + 1)].value());
    const ExactSum::Pair part = totals.sums[name * (numbers_ + 1) + 1 + number].pair();
    sum.add(part.high);
    sum.add(part.low);
  }
  return count.value() == 0 ? kNan : sum.value() / count.value();
}

std::string result_name(const std::string& number, const std::string& channel) {
  const std::size_t sign = channel.rfind('@');
  const bool has_step = sign != std::string::npos && sign + 1 < channel.size() &&
                        channel.find_first_not_of("0123456789", sign + 1) == std::string::npos;
  return has_step ? number + channel.substr(sign) + "/" + channel.substr(0, sign) : number + "/" + channel;
}

std::vector<Result> results_of_channels(const std::vector<std::string>& numbers, const FieldChannels& channels,
                                        bool is_higher_better) {
  std::vector<Result> results;
  for (const std::string& number : numbers) {
    for (const std::string& name : channels.names) results.push_back({result_name(number, name), is_higher_better});
  }
  return results;
}

std::vector<Result> errors_of_channels(const std::vector<std::string>& numbers, const FieldChannels& channels) {
  std::vector<Result> results = results_of_channels(numbers, channels);
  for (std::size_t i = 0; i < results.size(); ++i) results[i].unit = channels.units[i % channels.units.size()];
  return results;
}

std::vector<Result> with_channels(const std::vector<std::string>& numbers,
                                  const std::vector<std::vector<Result>>& of_channels) {
  std::vector<Result> results;
  for (const std::string& number : numbers) results.push_back({number, false});
  for (const std::vector<Result>& each : of_channels) results.insert(results.end(), each.begin(), each.end());
  return results;
}

}  // namespace lockstep::metrics
