// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/meters.hpp"

#include <lockstep/core/error.hpp>

#include <set>
#include <stdexcept>

namespace lockstep::metrics {

Meters::Meters(std::vector<Meter> meters) : meters_(std::move(meters)) {
  std::set<std::string> names;
  std::size_t words = 0;
  for (const Meter& meter : meters_) {
    words += meter.words;
    needs_all_samples_ = needs_all_samples_ || meter.words == 0;
    for (const Result& result : meter.results) {
      if (!names.insert(result.name).second) throw ConfigError("two meters give a number called " + result.name);
    }
  }
  sums_.resize(words);
}

std::vector<Result> Meters::results() const {
  std::vector<Result> results;
  for (const Meter& meter : meters_) results.insert(results.end(), meter.results.begin(), meter.results.end());
  return results;
}

void Meters::add(const Samples& samples) {
  std::span<std::int64_t> words = sums_;
  for (const Meter& meter : meters_) {
    if (meter.words > 0) meter.add(samples, words.first(meter.words));
    words = words.subspan(meter.words);
  }
  if (needs_all_samples_) append(samples_, samples);
}

void Meters::merge(const Meters& other) {
  if (other.sums_.size() != sums_.size()) throw std::logic_error("only counts of the same meters can be merged");
  for (std::size_t i = 0; i < sums_.size(); ++i) sums_[i] += other.sums_[i];
  if (needs_all_samples_) take_gathered(std::vector{packed(), other.packed()});
}

std::vector<std::byte> Meters::packed() const { return pack(samples_); }

void Meters::take_gathered(std::span<const std::vector<std::byte>> parts) { samples_ = unpack(parts); }

Meters::Readings Meters::read() const {
  Readings readings;
  std::span<const std::int64_t> words = sums_;
  for (const Meter& meter : meters_) {
    Reading reading = meter.words > 0 ? meter.read(words.first(meter.words)) : meter.read_all(samples_);
    words = words.subspan(meter.words);
    for (std::size_t i = 0; i < meter.results.size(); ++i) {
      readings.numbers.emplace_back(meter.results[i].name, reading.numbers.at(i));
    }
    for (Table& table : reading.tables) readings.tables.push_back(std::move(table));
  }
  return readings;
}

}  // namespace lockstep::metrics
