// SPDX-License-Identifier: BSD-3-Clause
#include "ckpt/reading/values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <type_traits>

namespace lockstep::ckpt {

Statistics statistics_of(const Array& array) { return checkpoints::statistics_of(array.dtype, array.bytes); }

double absmax_of(const Statistics& statistics) { return std::max(std::abs(statistics.min), std::abs(statistics.max)); }

double deviation_of(const Statistics& statistics) {
  return std::sqrt(std::max(0.0, statistics.rms * statistics.rms - statistics.mean * statistics.mean));
}

namespace {

std::string hex_text(const Array& array, std::int64_t index) {
  const std::size_t size = size_of(array.dtype);
  std::string text = "0x";
  for (std::size_t i = size; i-- > 0;) {
    const auto byte = std::to_integer<unsigned>(array.bytes[static_cast<std::size_t>(index) * size + i]);
    text += fmt::format("{:02x}", byte);
  }
  return text;
}

template <class T>
void put(std::byte* bytes, std::int64_t i, T value) {
  std::memcpy(bytes + static_cast<std::size_t>(i) * sizeof value, &value, sizeof value);
}

// --- comparison ---

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

std::string element_text(const Array& array, std::int64_t index, const NumberFormat& format) {
  if (format.is_hex) return hex_text(array, index);
  return with_numbers(array, [&](auto load, std::int64_t) -> std::string {
    using Value = decltype(load(0));
    if constexpr (std::is_floating_point_v<Value>) {
      if (!is_complex(array.dtype)) return fmt::format("{:.{}g}", load(index), format.digits);
      const std::string imaginary = fmt::format("{:+.{}g}", load(2 * index + 1), format.digits);
      return fmt::format("{:.{}g}{}i", load(2 * index), format.digits, imaginary);
    } else {
      if (array.dtype == DType::boolean) return load(index) != 0 ? "true" : "false";
      return std::to_string(load(index));
    }
  });
}

bool is_real_floating(DType dtype) { return is_floating(dtype) && !is_complex(dtype); }

std::pair<Array, std::byte*> new_array(DType dtype, const std::vector<std::int64_t>& shape) {
  const auto bytes = static_cast<std::size_t>(element_count(shape)) * size_of(dtype);
  auto memory = std::make_shared<std::vector<std::byte>>(bytes);
  std::byte* const data = memory->data();
  return {Array{.dtype = dtype, .shape = shape, .bytes = std::span(data, bytes), .owner = std::move(memory)}, data};
}

void store(DType dtype, std::byte* bytes, std::int64_t i, double value) {
  switch (dtype) {
    case DType::float64:
      return put(bytes, i, value);
    case DType::float16:
      return put(bytes, i, float_to_half(static_cast<float>(value)));
    case DType::bfloat16:
      return put(bytes, i, float_to_bfloat16(static_cast<float>(value)));
    default:
      return put(bytes, i, static_cast<float>(value));
  }
}

Array cast_to(const Array& array, DType dtype) {
  auto [result, bytes] = new_array(dtype, array.shape);
  const std::int64_t count = element_count(array.shape);
  with_loader(array.dtype, [&, data = bytes](auto load) {
    for (std::int64_t i = 0; i < count; ++i) store(dtype, data, i, static_cast<double>(load(array.bytes.data(), i)));
  });
  return result;
}

bool overflows(const Array& before, const Array& after) {
  return statistics_of(after).infs > statistics_of(before).infs;
}

BinCounts histogram_of(const Array& array, std::size_t bins) {
  const Statistics span = statistics_of(array);
  BinCounts found{.low = span.min, .high = span.max, .counts = std::vector<std::int64_t>(bins, 0)};
  found.nans = span.nans;
  found.infs = span.infs;
  if (found.low == found.high) {
    const double room = found.low == 0.0 ? 0.5 : 0.5 * std::abs(found.low);
    found.low -= room;
    found.high += room;
  }
  const double width = found.high / static_cast<double>(bins) - found.low / static_cast<double>(bins);
  with_numbers(array, [&](auto load, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      const auto value = static_cast<double>(load(i));
      if (!std::isfinite(value)) continue;
      const double place = std::clamp(std::floor((value - found.low) / width), 0.0, static_cast<double>(bins - 1));
      ++found.counts[static_cast<std::size_t>(place)];
    }
  });
  return found;
}

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
