// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace at {
class Tensor;
}

namespace lockstep {

/// Forward declaration, so that a header can use `const Tensor&` without including LibTorch.
using Tensor = at::Tensor;

/// Element types of buckets, parameters and checkpoints.
enum class DType : std::uint8_t {
  float32,
  float64,
  float16,
  bfloat16,
  int8,
  int16,
  int32,
  int64,
  uint8,
  boolean,
  complex64,
  complex128,
};

inline constexpr std::array kAllDTypes = {DType::float32, DType::float64, DType::float16,   DType::bfloat16,
                                          DType::int8,    DType::int16,   DType::int32,     DType::int64,
                                          DType::uint8,   DType::boolean, DType::complex64, DType::complex128};

/// Bytes of one element.
std::size_t size_of(DType dtype);

/// PyTorch's name of the type, such as "float32" or "bfloat16"; "bool" for boolean.
std::string_view name_of(DType dtype);

/// The type with this name: the inverse of name_of.
/// @throws ConfigError  the type is unknown
DType dtype_from_name(std::string_view name);

/// Converts IEEE half precision to float32 (exact).
float half_to_float(std::uint16_t bits);
/// Rounds to IEEE half precision, ties to even; overflow becomes infinity, NaN stays NaN.
std::uint16_t float_to_half(float value);

/// Converts bfloat16 to float32 (exact).
float bfloat16_to_float(std::uint16_t bits);
/// Rounds to bfloat16, ties to even; NaN stays NaN.
std::uint16_t float_to_bfloat16(float value);

/// Rules FROM, TO that rename tensors of other programs and parameters of checkpoints; they apply one after another,
/// each to the name that the one before it made. A FROM that begins with "re:" is a regular expression.
using Renames = std::vector<std::pair<std::string, std::string>>;

}  // namespace lockstep
