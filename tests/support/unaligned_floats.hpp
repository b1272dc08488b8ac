// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/random/random.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::testing {

/// float32 numbers that are aligned to 4 bytes only, as a view of a tensor may be.
class UnalignedFloats {
 public:
  explicit UnalignedFloats(std::int64_t count, float value = 0) : values_(static_cast<std::size_t>(count) + 1, value) {}

  float* data() { return values_.data() + 1; }
  const float* data() const { return values_.data() + 1; }
  std::int64_t size() const { return static_cast<std::int64_t>(values_.size()) - 1; }
  float& operator[](std::int64_t i) { return data()[i]; }
  float operator[](std::int64_t i) const { return data()[i]; }
  bool operator==(const UnalignedFloats& other) const { return std::equal(data(), data() + size(), other.data()); }

 private:
  std::vector<float> values_;
};

/// UnalignedFloats in [-1, 1), or integers from -4 to 4, of which sums of products are exact in every order.
inline UnalignedFloats random_numbers(std::int64_t count, std::uint64_t seed, bool are_integers = false) {
  random::Sequence random(seed, random::Stream::user, 0);
  UnalignedFloats numbers(count);
  for (std::int64_t i = 0; i < count; ++i) {
    numbers[i] = are_integers ? static_cast<float>(random.below(9)) - 4 : static_cast<float>(random.uniform(-1, 1));
  }
  return numbers;
}

/// The largest distance. NaN if one is.
template <class Values>
double largest_error(const Values& got, const std::vector<double>& exact) {
  double largest = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double error = std::abs(static_cast<double>(got.data()[i]) - exact[i]);
    if (!(error <= largest)) largest = error;
  }
  return largest;
}

}  // namespace lockstep::testing
