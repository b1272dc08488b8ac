// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/metrics/meter.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>

#include "core/text/text.hpp"

namespace lockstep::metrics {

namespace {

/// Whether score `a` goes before score `b`; NaN comes last.
bool is_higher(double a, double b) { return a > b || (std::isnan(b) && !std::isnan(a)); }

std::string text_of(double value) {
  const bool is_whole = value == std::floor(value) && std::abs(value) < 1e15;
  return is_whole ? std::to_string(static_cast<std::int64_t>(value)) : number_text(value);
}

struct Header {
  std::uint64_t samples = 0;
  std::uint64_t output_columns = 0;
  std::uint64_t target_columns = 0;
  std::uint64_t values = 0;  // how many names of them
};

template <class T>
void put(std::vector<std::byte>& bytes, std::span<const T> values) {
  const auto raw = std::as_bytes(values);
  bytes.insert(bytes.end(), raw.begin(), raw.end());
}

/// Takes `count` values from the front of `bytes`.
template <class Values>
void take(std::span<const std::byte>& bytes, std::size_t count, Values& values) {
  values.resize(count);
  if (count == 0) return;
  const std::size_t size = count * sizeof(values[0]);
  std::memcpy(values.data(), bytes.data(), size);
  bytes = bytes.subspan(size);
}

template <class T>
T take_one(std::span<const std::byte>& bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes = bytes.subspan(sizeof value);
  return value;
}

void put_text(std::vector<std::byte>& bytes, const std::string& text) {
  const std::uint64_t length = text.size();
  put(bytes, std::span(&length, 1));
  put(bytes, std::span(text));
}

std::string take_text(std::span<const std::byte>& bytes) {
  std::string text;
  take(bytes, take_one<std::uint64_t>(bytes), text);
  return text;
}

void put_value(std::vector<std::byte>& bytes, const SampleValue& value) {
  bytes.push_back(static_cast<std::byte>(value.index()));
  if (const double* const number = std::get_if<double>(&value)) {
    put(bytes, std::span(number, 1));
  } else {
    put_text(bytes, std::get<std::string>(value));
  }
}

SampleValue take_value(std::span<const std::byte>& bytes) {
  if (take_one<std::byte>(bytes) != std::byte{0}) return take_text(bytes);
  return take_one<double>(bytes);
}

Samples unpack_one(std::span<const std::byte> bytes) {
  Samples samples;
  if (bytes.empty()) return samples;
  const auto header = take_one<Header>(bytes);
  samples.output_columns = header.output_columns;
  samples.target_columns = header.target_columns;
  take(bytes, header.samples, samples.indices);
  take(bytes, header.samples * header.output_columns, samples.outputs);
  take(bytes, header.samples * header.target_columns, samples.targets);
  for (std::uint64_t i = 0; i < header.values; ++i) {
    std::vector<SampleValue>& values = samples.values[take_text(bytes)];
    for (std::uint64_t sample = 0; sample < header.samples; ++sample) values.push_back(take_value(bytes));
  }
  return samples;
}

}  // namespace

std::int64_t class_of(double value, std::int64_t classes, std::int64_t ignored) {
  if (value == static_cast<double>(kIgnored) || value == static_cast<double>(ignored)) return kIgnored;
  if (value >= 0 && value < static_cast<double>(classes) && value == std::floor(value)) {
    return static_cast<std::int64_t>(value);
  }
  throw DataError("class " + text_of(value) + " is out of range: there are " + std::to_string(classes) +
                  " classes, numbered from 0");
}

int label_of(double value) {
  if (value == 0 || value == 1 || value == -1) return static_cast<int>(value);
  throw DataError("label " + text_of(value) + ": labels are 0, 1, or -1 = not counted");
}

std::size_t best_class(std::span<const double> scores) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < scores.size(); ++i) {
    if (is_higher(scores[i], scores[best])) best = i;
  }
  return best;
}

std::size_t place_of(std::span<const double> scores, std::size_t wanted) {
  std::size_t before = 0;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const bool is_equal = !is_higher(scores[i], scores[wanted]) && !is_higher(scores[wanted], scores[i]);
    if (is_higher(scores[i], scores[wanted]) || (is_equal && i < wanted)) ++before;
  }
  return before;
}

void log_softmax(std::span<double> scores) {
  const double highest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (const double score : scores) sum += std::exp(score - highest);
  const double log_sum = std::log(sum);
  for (double& score : scores) score = (score - highest) - log_sum;  // highest + log_sum would lose digits
}

void softmax(std::span<double> scores) {
  log_softmax(scores);
  for (double& score : scores) score = std::exp(score);
}

void append(Samples& samples, const Samples& more) {
  if (more.size() == 0) return;
  if (samples.size() == 0) {
    samples = more;
    return;
  }
  if (more.output_columns != samples.output_columns || more.target_columns != samples.target_columns) {
    throw DataError("samples with " + std::to_string(samples.output_columns) + " outputs and " +
                    std::to_string(samples.target_columns) + " targets, and others with " +
                    std::to_string(more.output_columns) + " and " + std::to_string(more.target_columns) +
                    ", cannot be combined");
  }
  samples.indices.insert(samples.indices.end(), more.indices.begin(), more.indices.end());
  samples.outputs.insert(samples.outputs.end(), more.outputs.begin(), more.outputs.end());
  samples.targets.insert(samples.targets.end(), more.targets.begin(), more.targets.end());
  for (const auto& [name, values] : more.values) {
    std::vector<SampleValue>& all = samples.values[name];
    all.insert(all.end(), values.begin(), values.end());
  }
}

std::vector<std::byte> pack(const Samples& samples) {
  std::vector<std::byte> bytes;
  if (samples.size() == 0) return bytes;
  const Header header{samples.size(), samples.output_columns, samples.target_columns, samples.values.size()};
  put(bytes, std::span(&header, 1));
  put(bytes, std::span(samples.indices));
  put(bytes, std::span(samples.outputs));
  put(bytes, std::span(samples.targets));
  for (const auto& [name, values] : samples.values) {
    put_text(bytes, name);
    for (const SampleValue& value : values) put_value(bytes, value);
  }
  return bytes;
}

Samples unpack(std::span<const std::vector<std::byte>> parts) {
  Samples all;
  for (const auto& part : parts) append(all, unpack_one(part));
  std::vector<std::size_t> order(all.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&all](std::size_t a, std::size_t b) { return all.indices[a] < all.indices[b]; });
  Samples sorted;
  sorted.output_columns = all.output_columns;
  sorted.target_columns = all.target_columns;
  for (const std::size_t i : order) {
    if (!sorted.indices.empty() && sorted.indices.back() == all.indices[i]) continue;
    sorted.indices.push_back(all.indices[i]);
    const auto output = all.output(i);
    sorted.outputs.insert(sorted.outputs.end(), output.begin(), output.end());
    const auto target = all.target(i);
    sorted.targets.insert(sorted.targets.end(), target.begin(), target.end());
    for (const auto& [name, values] : all.values) sorted.values[name].push_back(values[i]);
  }
  return sorted;
}

}  // namespace lockstep::metrics
