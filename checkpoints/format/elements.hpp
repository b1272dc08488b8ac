// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/core/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

/// The numbers in an array, and their statistics.
namespace lockstep::checkpoints {

/// Elements of an array of this shape.
std::int64_t element_count(const std::vector<std::int64_t>& shape);

bool is_floating(DType dtype);  ///< complex types too
bool is_complex(DType dtype);

/// A number as it is stored: long double holds every one of our types exactly.
using StoredNumber = long double;

/// Calls `visit(load)` with the function that loads number `i` of the bytes of an array of this type; a complex element
/// is two numbers.
template <class Visit>
decltype(auto) with_loader(DType dtype, Visit&& visit) {
  const auto raw = []<class T>(const std::byte* bytes, std::int64_t i, T value) {
    std::memcpy(&value, bytes + static_cast<std::size_t>(i) * sizeof value, sizeof value);
    return value;
  };
  using Bytes = const std::byte*;
  switch (dtype) {
    case DType::float32:
    case DType::complex64:
      return visit([raw](Bytes bytes, std::int64_t i) { return raw(bytes, i, float{}); });
    case DType::float64:
    case DType::complex128:
      return visit([raw](Bytes bytes, std::int64_t i) { return raw(bytes, i, double{}); });
    case DType::float16:
      return visit([raw](Bytes bytes, std::int64_t i) { return half_to_float(raw(bytes, i, std::uint16_t{})); });
    case DType::bfloat16:
      return visit([raw](Bytes bytes, std::int64_t i) { return bfloat16_to_float(raw(bytes, i, std::uint16_t{})); });
    case DType::int8:
      return visit([raw](Bytes bytes, std::int64_t i) { return raw(bytes, i, std::int8_t{}); });
    case DType::int16:
      return visit([raw](Bytes bytes, std::int64_t i) { return raw(bytes, i, std::int16_t{}); });
    case DType::int32:
      return visit([raw](Bytes bytes, std::int64_t i) { return raw(bytes, i, std::int32_t{}); });
    case DType::int64:
      return visit([raw](Bytes bytes, std::int64_t i) { return raw(bytes, i, std::int64_t{}); });
    case DType::uint8:
    case DType::boolean:
      break;
  }
  return visit([raw](Bytes bytes, std::int64_t i) { return raw(bytes, i, std::uint8_t{}); });
}

/// Numbers in an array: twice its elements where they are complex.
std::int64_t number_count(const Array& array);

/// Calls `visit(load, count)` with a function from an index to the number there.
template <class Visit>
decltype(auto) with_numbers(const Array& array, Visit&& visit) {
  return with_loader(array.dtype, [&](auto load) -> decltype(auto) {
    return visit([&array, load](std::int64_t i) { return load(array.bytes.data(), i); }, number_count(array));
  });
}

/// "[2, 0, 5]", where `element` of the array in row-major order stands.
std::vector<std::int64_t> position_of(std::int64_t element, const std::vector<std::int64_t>& shape);

/// Statistics of the elements of an array. Booleans count as 0 and 1; of complex numbers both parts count as elements.
struct Statistics {
  double min = 0;  ///< this and the next three are of the finite elements; all 0 when there are none
  double max = 0;
  double mean = 0;
  double rms = 0;  ///< square root of the mean square
  std::uint64_t nans = 0;
  std::uint64_t infs = 0;   ///< infs of either sign
  std::uint64_t zeros = 0;  ///< zeros of either sign
  bool operator==(const Statistics&) const = default;
};

/// Gathers the statistics of an array from its parts, one after the other. Equal parts give equal bits.
class StatisticsSum {
 public:
  /// @param bytes  whole elements
  void add(DType dtype, std::span<const std::byte> bytes);
  /// Adds the statistics that another one has gathered, as of the part that follows.
  void add(const StatisticsSum& next);
  Statistics result() const;

 private:
  std::uint64_t count_ = 0;  // count of finite elements
  double min_ = 0;
  double max_ = 0;
  double sum_ = 0;
  double square_sum_ = 0;
  std::uint64_t nans_ = 0;
  std::uint64_t infs_ = 0;
  std::uint64_t zeros_ = 0;
};

Statistics statistics_of(DType dtype, std::span<const std::byte> bytes);

}  // namespace lockstep::checkpoints
