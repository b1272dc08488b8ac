// SPDX-License-Identifier: BSD-3-Clause
#include "ckpt/reading/compare.hpp"

#include <algorithm>
#include <type_traits>

namespace lockstep::ckpt {

namespace {

/// Bits of a floating-point number as an integer that counts the numbers from 0 on; negative ones count down.
template <class Bits>
std::int64_t rank_of(Bits bits) {
  using Signed = std::make_signed_t<Bits>;
  constexpr auto kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  const auto magnitude = static_cast<std::int64_t>(static_cast<Signed>(bits & static_cast<Bits>(~kSign)));
  return (bits & kSign) != 0 ? -magnitude : magnitude;
}

template <class Bits>
std::uint64_t distance(const std::byte* left, const std::byte* right) {
  Bits a = 0;
  Bits b = 0;
  std::memcpy(&a, left, sizeof a);
  std::memcpy(&b, right, sizeof b);
  const std::int64_t x = rank_of(a);
  const std::int64_t y = rank_of(b);
  return x < y ? static_cast<std::uint64_t>(y) - static_cast<std::uint64_t>(x)
               : static_cast<std::uint64_t>(x) - static_cast<std::uint64_t>(y);
}

/// Bytes of one number: half an element where that is complex.
std::size_t number_bytes(DType dtype) { return size_of(dtype) / (is_complex(dtype) ? 2 : 1); }

std::uint64_t ulps(DType dtype, const std::byte* left, const std::byte* right) {
  if (!is_floating(dtype)) return 0;
  switch (number_bytes(dtype)) {
    case 2:
      return distance<std::uint16_t>(left, right);
    case 4:
      return distance<std::uint32_t>(left, right);
    default:
      return distance<std::uint64_t>(left, right);
  }
}

bool is_same(StoredNumber a, StoredNumber b, const DiffTolerance& tolerance) {
  if (std::isnan(a) || std::isnan(b)) return tolerance.nan_equal && std::isnan(a) && std::isnan(b);
  if (a == b) return true;
  if (std::isinf(a) || std::isinf(b)) return false;
  return std::abs(a - b) <= tolerance.atol + tolerance.rtol * std::abs(b);
}

void widen(Comparison& found, StoredNumber a, StoredNumber b) {
  const StoredNumber difference = std::abs(a - b);
  if (std::isnan(difference) || difference == 0) return;
  found.max_abs = std::max(found.max_abs, static_cast<double>(difference));
  if (std::isinf(difference)) {
    found.max_rel = static_cast<double>(difference);
  } else {
    found.max_rel = std::max(found.max_rel, static_cast<double>(difference / std::max(std::abs(a), std::abs(b))));
  }
}

}  // namespace

Comparison compare(const Array& left, const Array& right, const DiffTolerance& tolerance) {
  Comparison found;
  const std::size_t bytes = number_bytes(left.dtype);
  const bool can_hold_nan = is_floating(left.dtype) && !tolerance.is_bitwise && !tolerance.nan_equal;
  const bool is_equal = std::equal(left.bytes.begin(), left.bytes.end(), right.bytes.begin(), right.bytes.end());
  if (is_equal && !can_hold_nan) return found;
  const std::int64_t per_element = is_complex(left.dtype) ? 2 : 1;
  std::int64_t last = -1;
  with_loader(left.dtype, [&](auto load) {
    for (std::int64_t i = 0; i < number_count(left); ++i) {
      const std::byte* const x = left.bytes.data() + static_cast<std::size_t>(i) * bytes;
      const std::byte* const y = right.bytes.data() + static_cast<std::size_t>(i) * bytes;
      const bool has_same_bytes = std::memcmp(x, y, bytes) == 0;
      if (has_same_bytes && !can_hold_nan) continue;
      const auto a = static_cast<StoredNumber>(load(x, 0));
      const auto b = static_cast<StoredNumber>(load(y, 0));
      if (!has_same_bytes && !std::isnan(a) && !std::isnan(b)) {
        widen(found, a, b);
        found.max_ulp = std::max(found.max_ulp, ulps(left.dtype, x, y));
      }
      if (tolerance.is_bitwise ? has_same_bytes : is_same(a, b, tolerance)) continue;
      const std::int64_t element = i / per_element;
      if (element != last) ++found.differing;
      last = element;
      if (!found.first) found.first = element;
    }
  });
  return found;
}

}  // namespace lockstep::ckpt
