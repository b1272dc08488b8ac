// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/format/statistics.hpp"

#include <algorithm>
#include <cmath>

#include "checkpoints/format/elements.hpp"
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
