// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/tensor.hpp>

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep::checkpoints {

/// safetensors' names of the types that we have; it has no complex128.
inline constexpr std::array kSafetensorsDTypes = {
    std::pair{DType::float32, std::string_view("F32")},  std::pair{DType::float64, std::string_view("F64")},
    std::pair{DType::float16, std::string_view("F16")},  std::pair{DType::bfloat16, std::string_view("BF16")},
    std::pair{DType::int8, std::string_view("I8")},      std::pair{DType::int16, std::string_view("I16")},
    std::pair{DType::int32, std::string_view("I32")},    std::pair{DType::int64, std::string_view("I64")},
    std::pair{DType::uint8, std::string_view("U8")},     std::pair{DType::boolean, std::string_view("BOOL")},
    std::pair{DType::complex64, std::string_view("C64")}};

inline std::optional<DType> dtype_of_safetensors(std::string_view name) {
  for (const auto& [dtype, known] : kSafetensorsDTypes) {
    if (known == name) return dtype;
  }
  return std::nullopt;
}

inline std::optional<std::string_view> safetensors_name_of(DType dtype) {
  for (const auto& [known, name] : kSafetensorsDTypes) {
    if (known == dtype) return name;
  }
  return std::nullopt;
}

/// "F32, F64, ...", for messages.
inline std::string safetensors_dtypes() {
  std::string list;
  for (const auto& [dtype, name] : kSafetensorsDTypes) list += (list.empty() ? "" : ", ") + std::string(name);
  return list;
}

}  // namespace lockstep::checkpoints
