// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/random/random.hpp>

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/text/text.hpp"
#include "data/epoch_list.hpp"

namespace lockstep::data {

namespace {

/// The sum of the factors, rounded.
std::int64_t length_of(const std::vector<double>& factors) {
  double sum = 0;
  for (std::size_t i = 0; i < factors.size(); ++i) {
    if (!std::isfinite(factors[i]) || factors[i] < 0) {
      throw ConfigError("sample " + std::to_string(i) + " has the repeat factor " + number_text(factors[i]) +
                        "; it must be at least 0");
    }
    sum += factors[i];
  }
  const std::int64_t length = std::llround(sum);
  if (length < 1) throw ConfigError("the repeat factors leave no sample in an epoch");
  return length;
}

IndexList epoch_of(const std::vector<double>& factors, std::int64_t length, std::uint64_t seed, std::int64_t epoch) {
  const auto a = static_cast<std::uint64_t>(epoch);
  random::Sequence draws(seed, random::Stream::order, a, static_cast<std::uint64_t>(DrawKind::repeats));
  std::vector<double> numbers(factors.size());
  for (double& number : numbers) number = draws.uniform();
  IndexList copies;
  const IndexList counts = repeated(factors, numbers);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    copies.insert(copies.end(), static_cast<std::size_t>(counts[i]), static_cast<std::int64_t>(i));
  }
  // Stands in when no fraction was drawn at all.
  if (copies.empty()) copies.push_back(std::max_element(factors.begin(), factors.end()) - factors.begin());
  const random::Permutation order(copies.size(), random::bits(seed, random::Stream::order, a));
  IndexList list(static_cast<std::size_t>(length));
  for (std::size_t i = 0; i < list.size(); ++i) list[i] = copies[order(i % copies.size())];
  return list;
}

}  // namespace

OrderPtr repeat_factor_order(std::vector<double> factors, std::uint64_t seed) {
  const std::int64_t length = length_of(factors);
  return order_of_lists(length, [factors = std::move(factors), length, seed](std::int64_t epoch) {
    return epoch_of(factors, length, seed, epoch);
  });
}

std::vector<double> repeat_factors(const std::vector<IndexList>& categories, double threshold, bool takes_root) {
  if (!(threshold > 0)) throw ConfigError("the threshold of repeat factors must be above 0");
  std::map<std::int64_t, double> samples_with;
  for (const IndexList& sample : categories) {
    for (const std::int64_t category : std::set<std::int64_t>(sample.begin(), sample.end()))
      samples_with[category] += 1;
  }
  std::vector<double> factors;
  for (const IndexList& sample : categories) {
    double factor = 1;
    for (const std::int64_t category : sample) {
      const double wanted = threshold / (samples_with[category] / static_cast<double>(categories.size()));
      factor = std::max(factor, takes_root ? std::sqrt(wanted) : wanted);
    }
    factors.push_back(factor);
  }
  return factors;
}

IndexList repeated(std::span<const double> factors, std::span<const double> draws) {
  if (factors.size() != draws.size()) throw std::invalid_argument("repeated: a draw for each factor is needed");
  IndexList counts;
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const double whole = std::floor(factors[i]);
    counts.push_back(static_cast<std::int64_t>(whole) + (draws[i] < factors[i] - whole ? 1 : 0));
  }
  return counts;
}

}  // namespace lockstep::data
