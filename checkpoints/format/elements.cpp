// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/format/elements.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/finite_sums.hpp"

namespace lockstep::checkpoints {

namespace {

/// Rare enough to be counted in a second pass.
std::uint64_t count_nans(DType dtype, std::span<const std::byte> bytes, std::size_t count) {
  return with_loader(dtype, [&](auto load) {
    std::uint64_t nans = 0;
    for (std::size_t i = 0; i < count; ++i) {
      nans += std::isnan(static_cast<double>(load(bytes.data(), static_cast<std::int64_t>(i)))) ? 1 : 0;
    }
    return nans;
  });
}

}  // namespace

std::int64_t element_count(const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1;
  for (const std::int64_t dimension : shape) count *= dimension;
  return count;
}

bool is_complex(DType dtype) { return dtype == DType::complex64 || dtype == DType::complex128; }

bool is_floating(DType dtype) {
  return dtype == DType::float32 || dtype == DType::float64 || dtype == DType::float16 || dtype == DType::bfloat16 ||
         is_complex(dtype);
}

std::int64_t number_count(const Array& array) {
  return static_cast<std::int64_t>(array.bytes.size() / size_of(array.dtype)) * (is_complex(array.dtype) ? 2 : 1);
}

std::vector<std::int64_t> position_of(std::int64_t element, const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> position(shape.size());
  for (std::size_t i = shape.size(); i-- > 0;) {
    position[i] = element % shape[i];
    element /= shape[i];
  }
  return position;
}

void StatisticsSum::add(DType dtype, std::span<const std::byte> bytes) {
  const kernels::Summation summation = kernels::summation_of(dtype);
  const std::size_t count = bytes.size() / summation.element_bytes;
  const kernels::FiniteSums part = summation.sum(bytes.data(), count);
  StatisticsSum next;
  next.count_ = part.count;
  next.min_ = part.min;
  next.max_ = part.max;
  next.sum_ = part.sum;
  next.square_sum_ = part.square_sum;
  next.zeros_ = part.zeros;
  if (part.count < count) {
    next.nans_ = count_nans(dtype, bytes, count);
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
