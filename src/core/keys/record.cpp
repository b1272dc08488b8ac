// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/measurements.hpp>

namespace lockstep {

std::optional<double> number_in(const NamedValue& value) {
  if (const auto* const real = std::get_if<double>(&value)) return *real;
  if (const auto* const integer = std::get_if<std::int64_t>(&value)) return static_cast<double>(*integer);
  return std::nullopt;
}

std::optional<double> Record::number(const std::string& name) const {
  for (const auto& [key, value] : values) {
    if (key == name) return number_in(value);
  }
  return std::nullopt;
}

}  // namespace lockstep
