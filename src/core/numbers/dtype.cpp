// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/tensor.hpp>

#include <bit>
#include <cmath>
#include <string>

#include "core/numbers/bfloat16.hpp"

namespace lockstep {

namespace {

struct Row {
  DType dtype;
  std::size_t size;
  std::string_view name;
};

constexpr std::array<Row, kAllDTypes.size()> kRows = {{
    {DType::float32, 4, "float32"},
    {DType::float64, 8, "float64"},
    {DType::float16, 2, "float16"},
    {DType::bfloat16, 2, "bfloat16"},
    {DType::int8, 1, "int8"},
    {DType::int16, 2, "int16"},
    {DType::int32, 4, "int32"},
    {DType::int64, 8, "int64"},
    {DType::uint8, 1, "uint8"},
    {DType::boolean, 1, "bool"},
    {DType::complex64, 8, "complex64"},
    {DType::complex128, 16, "complex128"},
}};

}  // namespace

std::size_t size_of(DType dtype) { return kRows.at(static_cast<std::size_t>(dtype)).size; }

std::string_view name_of(DType dtype) { return kRows.at(static_cast<std::size_t>(dtype)).name; }

DType dtype_from_name(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name == name) return row.dtype;
  }
  throw ConfigError("dtype '" + std::string(name) + "' is unknown; use PyTorch's names, such as float32");
}

float bfloat16_to_float(std::uint16_t bits) { return to_float(BFloat16{bits}); }

std::uint16_t float_to_bfloat16(float value) { return to_bfloat16(value).bits; }

float half_to_float(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1FU;
  const std::uint32_t mantissa = bits & 0x3FFU;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000U | (mantissa << 13));
  if (exponent == 0) {
    const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

std::uint16_t float_to_half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  constexpr std::uint32_t kInfinity = 0x7F800000U;
  constexpr std::uint32_t kRoundsToInfinity = 0x477FF000U;  // 65520, halfway beyond the largest half
  constexpr std::uint32_t kSmallestNormal = 0x38800000U;    // 2^-14
  if (magnitude > kInfinity) return static_cast<std::uint16_t>(sign | 0x7E00U | ((magnitude >> 13) & 0x3FFU));
  if (magnitude >= kRoundsToInfinity) return static_cast<std::uint16_t>(sign | 0x7C00U);
  if (magnitude < kSmallestNormal) {
    // Scaled by 2^24 a subnormal half is an integer; nearbyint rounds it to even.
    const float scaled = std::ldexp(std::bit_cast<float>(magnitude), 24);
    return static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(std::nearbyint(scaled)));
  }
  const std::uint32_t round_to_even = 0xFFFU + ((magnitude >> 13) & 1U);
  return static_cast<std::uint16_t>(sign | ((magnitude + round_to_even - (112U << 23)) >> 13));
}

}  // namespace lockstep
