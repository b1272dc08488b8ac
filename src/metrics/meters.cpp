// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/meters.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cstring>
#include <set>
#include <stdexcept>
#include <utility>

namespace lockstep::metrics {

Meters::Meters(std::vector<Meter> meters) : meters_(std::move(meters)) {
  std::set<std::string> names;
  std::size_t words = 0;
  for (const Meter& meter : meters_) {
    words += meter.words;
    if (meter.words == 0 && gathered_for(meter) == gathered_.end()) gathered_.push_back({.reads = meter.reads});
    for (const Result& result : meter.results) {
      if (!names.insert(result.name).second)
        throw ConfigError("two meters compute a value named '" + result.name +
                          "'; set the option prefix of one of them");
    }
  }
  sums_.resize(words);
}

std::vector<Result> Meters::results() const {
  std::vector<Result> results;
  for (const Meter& meter : meters_) results.insert(results.end(), meter.results.begin(), meter.results.end());
  return results;
}

std::vector<Meters::Gathered>::const_iterator Meters::gathered_for(const Meter& meter) const {
  return std::ranges::find(gathered_, meter.reads, &Gathered::reads);
}

void Meters::add(const SamplesOf& samples_of) {
  std::vector<std::pair<Reads, Samples>> known;
  const auto samples_for = [&](const Reads& reads) -> const Samples& {
    for (const auto& [each, samples] : known) {
      if (each == reads) return samples;
    }
    return known.emplace_back(reads, samples_of(reads)).second;
  };
  std::span<std::int64_t> words = sums_;
  for (const Meter& meter : meters_) {
    if (meter.words > 0) meter.add(samples_for(meter.reads), words.first(meter.words));
    words = words.subspan(meter.words);
  }
  for (Gathered& gathered : gathered_) append(gathered.samples, samples_for(gathered.reads));
}

void Meters::add(const Samples& samples) {
  add([&samples](const Reads&) { return samples; });
}

void Meters::merge(const Meters& other) {
  if (other.sums_.size() != sums_.size()) throw std::logic_error("only the same meters can be merged");
  std::vector<std::int64_t> maxima = take_maxima();
  for (std::size_t i = 0; i < sums_.size(); ++i) sums_[i] += other.sums_[i];
  const std::vector<std::size_t> places = places_of_maxima();
  for (std::size_t i = 0; i < maxima.size(); ++i) maxima[i] = std::max(maxima[i], other.sums_[places[i]]);
  put_maxima(maxima);
  if (needs_all_samples()) take_gathered(std::vector{packed(), other.packed()});
}

std::vector<std::size_t> Meters::places_of_maxima() const {
  std::vector<std::size_t> places;
  std::size_t end = 0;
  for (const Meter& meter : meters_) {
    end += meter.words;
    for (std::size_t place = end - meter.maxima; place < end; ++place) places.push_back(place);
  }
  return places;
}

std::vector<std::int64_t> Meters::take_maxima() {
  std::vector<std::int64_t> maxima;
  for (const std::size_t place : places_of_maxima()) maxima.push_back(std::exchange(sums_[place], 0));
  return maxima;
}

void Meters::put_maxima(std::span<const std::int64_t> maxima) {
  const std::vector<std::size_t> places = places_of_maxima();
  for (std::size_t i = 0; i < places.size(); ++i) sums_[places[i]] = maxima[i];
}

/// One after the other; of several with the length of each before it.
std::vector<std::byte> Meters::packed() const {
  if (gathered_.empty()) return {};
  if (gathered_.size() == 1) return pack(gathered_.front().samples);
  std::vector<std::byte> all;
  for (const Gathered& gathered : gathered_) {
    const std::vector<std::byte> one = pack(gathered.samples);
    const std::uint64_t length = one.size();
    const auto bytes = std::as_bytes(std::span(&length, 1));
    all.insert(all.end(), bytes.begin(), bytes.end());
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

void Meters::take_gathered(std::span<const std::vector<std::byte>> parts) {
  if (gathered_.size() == 1) {
    gathered_.front().samples = unpack(parts);
    return;
  }
  std::vector<std::vector<std::vector<std::byte>>> by_group(gathered_.size());
  for (const std::vector<std::byte>& part : parts) {
    std::span<const std::byte> rest = part;
    for (auto& group : by_group) {
      std::uint64_t length = 0;
      if (rest.size() >= sizeof length) {
        std::memcpy(&length, rest.data(), sizeof length);
        rest = rest.subspan(sizeof length);
      }
      if (length > rest.size()) throw DataError("the gathered values of a rank are truncated");
      group.emplace_back(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(length));
      rest = rest.subspan(length);
    }
  }
  for (std::size_t i = 0; i < gathered_.size(); ++i) gathered_[i].samples = unpack(by_group[i]);
}

Meters::Readings Meters::read() const {
  Readings readings;
  std::span<const std::int64_t> words = sums_;
  for (const Meter& meter : meters_) {
    Reading reading =
        meter.words > 0 ? meter.read(words.first(meter.words)) : meter.read_all(gathered_for(meter)->samples);
    words = words.subspan(meter.words);
    if (reading.numbers.size() != meter.results.size()) {
      throw ConfigError("a meter returns " + std::to_string(reading.numbers.size()) + " numbers, but has " +
                        std::to_string(meter.results.size()) + " results" +
                        (meter.results.empty() ? "" : ", such as '" + meter.results.front().name + "'") +
                        "; correct its function `read`");
    }
    for (std::size_t i = 0; i < meter.results.size(); ++i) {
      readings.numbers.emplace_back(meter.results[i].name, reading.numbers[i]);
    }
    for (Table& table : reading.tables) readings.tables.push_back(std::move(table));
  }
  return readings;
}

}  // namespace lockstep::metrics
