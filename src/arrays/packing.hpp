// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "arrays/array_file.hpp"

/// The meaning of stored numbers by the CF conventions.
namespace lockstep::arrays {

/// How the numbers of an array become values: `stored * scale + offset`, in double. Gaps become NaN.
struct Packing {
  NumberType type;         ///< type of the stored numbers; the attribute _Unsigned may change the sign
  bool is_scaled = false;  ///< it has scale_factor or add_offset
  double scale = 1;
  double offset = 0;
  /// The stored numbers that mean "no value": _FillValue and every missing_value.
  std::vector<double> gaps = {};
  std::vector<std::int64_t> integer_gaps = {};  ///< the same of integers; those of uint64 as their bits
  /// The stored numbers outside of [lowest, highest] are suspicious (valid_range, valid_min, valid_max).
  double lowest = 0;
  double highest = 0;
  bool has_range = false;

  bool operator==(const Packing&) const = default;
};

/// @throws DataError  an attribute has a wrong type; names the file and the array
Packing packing_of(const std::string& file, const ArrayInfo& array);

/// Are values of this type, float or double, the stored numbers as they are?
template <class Value>
bool is_stored_as(const Packing& packing) {
  return packing.type.kind == NumberKind::real && packing.type.bytes == sizeof(Value) && !packing.is_scaled &&
         packing.gaps.empty();
}

/// Decodes stored numbers, in the byte order of the machine, with one rounding at the end. Stored NaN stay NaN.
/// @param stored  out.size() elements of packing.type.bytes
void decode(const Packing& packing, std::span<const std::byte> stored, std::span<float> out);
void decode(const Packing& packing, std::span<const std::byte> stored, std::span<double> out);

/// Are all values numbers of at most this magnitude? False if there are gaps.
bool are_all_within(std::span<const float> values, double largest);
bool are_all_within(std::span<const double> values, double largest);

}  // namespace lockstep::arrays
