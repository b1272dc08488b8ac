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

class RepeatFactor : public EpochList {
 public:
  RepeatFactor(std::vector<double> factors, std::uint64_t seed) : factors_(std::move(factors)), seed_(seed) {
    double sum = 0;
    for (std::size_t i = 0; i < factors_.size(); ++i) {
      if (!std::isfinite(factors_[i]) || factors_[i] < 0) {
        throw ConfigError("sample " + std::to_string(i) + " has the repeat factor " + number_text(factors_[i]) +
                          "; it must be at least 0");
      }
      sum += factors_[i];
    }
    length_ = std::llround(sum);
    if (length_ < 1) throw ConfigError("the repeat factors leave no sample in an epoch");
  }
  std::int64_t length() const override { return length_; }

 private:
  IndexList list(std::int64_t epoch) const override {
    const auto a = static_cast<std::uint64_t>(epoch);
    random::Sequence draws(seed_, random::Stream::order, a, static_cast<std::uint64_t>(DrawKind::repeats));
    std::vector<double> numbers(factors_.size());
    for (double& number : numbers) number = draws.uniform();
    IndexList copies;
    const IndexList counts = repeated(factors_, numbers);
    for (std::size_t i = 0; i < counts.size(); ++i) {
      copies.insert(copies.end(), static_cast<std::size_t>(counts[i]), static_cast<std::int64_t>(i));
    }
    if (copies.empty()) copies.push_back(largest());
    const random::Permutation order(copies.size(), random::bits(seed_, random::Stream::order, a));
    IndexList list(static_cast<std::size_t>(length_));
    for (std::size_t i = 0; i < list.size(); ++i) list[i] = copies[order(i % copies.size())];
    return list;
  }

  // Stands in when no fraction was drawn at all.
  std::int64_t largest() const { return std::max_element(factors_.begin(), factors_.end()) - factors_.begin(); }

  std::vector<double> factors_;
  std::uint64_t seed_;
  std::int64_t length_ = 0;
};

}  // namespace

OrderPtr repeat_factor_order(std::vector<double> factors, std::uint64_t seed) {
  return std::make_shared<RepeatFactor>(std::move(factors), seed);
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
