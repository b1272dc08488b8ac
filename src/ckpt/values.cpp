// SPDX-License-Identifier: BSD-3-Clause
#include "values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace lockstep::ckpt {

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

Statistics statistics_of(const Array& array) {
  return with_numbers(array, [](auto load, std::int64_t count) {
    Statistics found;
    found.min = std::numeric_limits<double>::infinity();
    found.max = -found.min;
    double sum = 0.0;
    double squares = 0.0;
    for (std::int64_t i = 0; i < count; ++i) {
      const auto value = static_cast<double>(load(i));
      if (std::isnan(value)) {
        ++found.nans;
      } else if (std::isinf(value)) {
        ++found.infs;
      } else {
        found.min = std::min(found.min, value);
        found.max = std::max(found.max, value);
        found.zeros += value == 0.0;
        sum += value;
        squares += value * value;
      }
    }
    const std::int64_t finite = count - found.nans - found.infs;
    if (finite == 0) found.min = found.max = 0.0;
    found.mean = finite == 0 ? 0.0 : sum / static_cast<double>(finite);
    found.rms = finite == 0 ? 0.0 : std::sqrt(squares / static_cast<double>(finite));
    return found;
  });
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

}  // namespace lockstep::ckpt
