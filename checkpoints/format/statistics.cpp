// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/format/statistics.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/at_level.hpp"

namespace lockstep::checkpoints {

namespace {

constexpr std::size_t kLanes = 8;
using Lanes [[gnu::vector_size(kLanes * sizeof(double))]] = double;
using LaneCounts [[gnu::vector_size(kLanes * sizeof(double))]] = std::int64_t;

/// Sums of the finite elements of one part.
struct Part {
  std::uint64_t count = 0;
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  double sum = 0;
  double square_sum = 0;
  std::uint64_t zeros = 0;
};

/// Sums in lanes, so that the processor's widest vectors give the same bits as no vectors do.
/// @param Load  sets lanes to the elements from `i` on
template <class Load>
LOCKSTEP_INLINE Part sum_up(const std::byte* bytes, std::size_t count, std::size_t width, const Load& load) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Lanes min = Lanes{} + kInfinity;
  Lanes max = Lanes{} - kInfinity;
  Lanes sum = {};
  Lanes square_sum = {};
  LaneCounts finite = {};
  LaneCounts zeros = {};
  const auto take = [&](const Lanes& value) __attribute__((always_inline)) {
    const LaneCounts is_finite = value - value == 0;  // -1 where it is so
    const Lanes counted = is_finite ? value : Lanes{};
    const Lanes low = is_finite ? value : Lanes{} + kInfinity;
    const Lanes high = is_finite ? value : Lanes{} - kInfinity;
    min = low < min ? low : min;
    max = high > max ? high : max;
    sum += counted;
    square_sum += counted * counted;
    finite -= is_finite;
    zeros -= value == 0;
  };
  Lanes value;
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    load(bytes + i * width, value);
    take(value);
  }
  if (i < count) {
    std::array<std::byte, kLanes * sizeof(double)> rest = {};
    std::memcpy(rest.data(), bytes + i * width, (count - i) * width);
    load(rest.data(), value);
    for (std::size_t lane = count - i; lane < kLanes; ++lane) value[lane] = std::nan("");  // counts as nothing here
    take(value);
  }
  Part part;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    part.count += static_cast<std::uint64_t>(finite[lane]);
    part.zeros += static_cast<std::uint64_t>(zeros[lane]);
    part.min = std::min(part.min, min[lane]);
    part.max = std::max(part.max, max[lane]);
    part.sum += sum[lane];
    part.square_sum += square_sum[lane];
  }
  return part;
}

template <class Stored>
LOCKSTEP_INLINE Stored load(const std::byte* bytes, std::size_t i) {
  Stored value;
  std::memcpy(&value, bytes + i * sizeof(Stored), sizeof(Stored));
  return value;
}

template <class Stored>
LOCKSTEP_INLINE Part sum_plain(const std::byte* bytes, std::size_t count) {
  using Vector [[gnu::vector_size(kLanes * sizeof(Stored))]] = Stored;
  return sum_up(
      bytes, count, sizeof(Stored), [](const std::byte* at, Lanes& lanes) __attribute__((always_inline)) {
        Vector values;
        std::memcpy(&values, at, sizeof values);
        lanes = __builtin_convertvector(values, Lanes);
      });
}

LOCKSTEP_INLINE Part sum_bfloat16(const std::byte* bytes, std::size_t count) {
  using Halves [[gnu::vector_size(kLanes * sizeof(std::uint16_t))]] = std::uint16_t;
  using Words [[gnu::vector_size(kLanes * sizeof(std::uint32_t))]] = std::uint32_t;
  using Floats [[gnu::vector_size(kLanes * sizeof(float))]] = float;
  return sum_up(
      bytes, count, sizeof(std::uint16_t), [](const std::byte* at, Lanes& lanes) __attribute__((always_inline)) {
        Halves halves;
        std::memcpy(&halves, at, sizeof halves);
        const Words words = __builtin_convertvector(halves, Words) << 16;
        Floats floats;
        std::memcpy(&floats, &words, sizeof floats);
        lanes = __builtin_convertvector(floats, Lanes);
      });
}

Part sum_float16(const std::byte* bytes, std::size_t count) {
  return sum_up(
      bytes, count, sizeof(std::uint16_t), [](const std::byte* at, Lanes& lanes) __attribute__((always_inline)) {
        for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] = half_to_float(load<std::uint16_t>(at, lane));
      });
}

template <class Stored>
Part sum_integers(const std::byte* bytes, std::size_t count) {
  return sum_plain<Stored>(bytes, count);
}

struct Summation {
  std::size_t element_bytes;  // of what is summed: a part of a complex number
  Part (*sum)(const std::byte* bytes, std::size_t count);
};

Summation summation_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
    case DType::complex64:
      return {4, at_level<sum_plain<float>>};
    case DType::float64:
    case DType::complex128:
      return {8, at_level<sum_plain<double>>};
    case DType::float16:
      return {2, sum_float16};
    case DType::bfloat16:
      return {2, at_level<sum_bfloat16>};
    case DType::int8:
      return {1, sum_integers<std::int8_t>};
    case DType::int16:
      return {2, sum_integers<std::int16_t>};
    case DType::int32:
      return {4, sum_integers<std::int32_t>};
    case DType::int64:
      return {8, sum_integers<std::int64_t>};
    case DType::uint8:
    case DType::boolean:
      break;
  }
  return {1, sum_integers<std::uint8_t>};
}

/// Rare enough to be counted in a second pass.
std::uint64_t count_nans(DType dtype, std::span<const std::byte> bytes) {
  const std::size_t width = summation_of(dtype).element_bytes;
  std::uint64_t nans = 0;
  for (std::size_t i = 0; i < bytes.size() / width; ++i) {
    double value = 0;
    if (width == 8) {
      value = load<double>(bytes.data(), i);
    } else if (width == 4) {
      value = load<float>(bytes.data(), i);
    } else if (dtype == DType::bfloat16) {
      value = bfloat16_to_float(load<std::uint16_t>(bytes.data(), i));
    } else {
      value = half_to_float(load<std::uint16_t>(bytes.data(), i));
    }
    nans += std::isnan(value) ? 1 : 0;
  }
  return nans;
}

}  // namespace

void StatisticsSum::add(DType dtype, std::span<const std::byte> bytes) {
  const Summation summation = summation_of(dtype);
  const std::size_t count = bytes.size() / summation.element_bytes;
  const Part part = summation.sum(bytes.data(), count);
  StatisticsSum next;
  next.count_ = part.count;
  next.min_ = part.min;
  next.max_ = part.max;
  next.sum_ = part.sum;
  next.square_sum_ = part.square_sum;
  next.zeros_ = part.zeros;
  if (part.count < count) {
    next.nans_ = count_nans(dtype, bytes);
    next.infs_ = count - part.count - next.nans_;
  }
  add(next);
}

void StatisticsSum::add(const StatisticsSum& next) {
  if (next.count_ > 0) {
    min_ = count_ == 0 ? next.min_ : std::min(min_, next.min_);
    max_ = count_ == 0 ? next.max_ : std::max(max_, next.max_);
  }
  count_ += next.count_;
  sum_ += next.sum_;
  square_sum_ += next.square_sum_;
  zeros_ += next.zeros_;
  nans_ += next.nans_;
  infs_ += next.infs_;
}

Statistics StatisticsSum::result() const {
  const double count = count_ == 0 ? 1 : static_cast<double>(count_);
  return {.min = min_,
          .max = max_,
          .mean = sum_ / count,
          .rms = std::sqrt(square_sum_ / count),
          .nans = nans_,
          .infs = infs_,
          .zeros = zeros_};
}

Statistics statistics_of(DType dtype, std::span<const std::byte> bytes) {
  StatisticsSum sum;
  sum.add(dtype, bytes);
  return sum.result();
}

}  // namespace lockstep::checkpoints
