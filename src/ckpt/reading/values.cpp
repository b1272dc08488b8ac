// SPDX-License-Identifier: BSD-3-Clause
#include "ckpt/reading/values.hpp"

#include <fmt/format.h>

#include <algorithm>
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
