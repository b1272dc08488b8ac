// SPDX-License-Identifier: BSD-3-Clause
#include "arrays/packing.hpp"

#include <lockstep/core/error.hpp>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>

#include "arrays/input_file.hpp"
#include "core/numbers/dtype.hpp"
#include "core/numbers/processor_level.hpp"
#include "core/text/text.hpp"

namespace lockstep::arrays {

namespace {

// --- attributes ---

[[noreturn]] void fail_packing(const std::string& file, const ArrayInfo& array, const std::string& attribute,
                               const std::string& message) {
  throw DataError(file, called(array.path) + ": its attribute " + attribute + " " + message);
}

/// Calls use(number) for each number of an attribute, as std::int64_t, std::uint64_t or double.
/// @return  how many there are; 0 = there is no such attribute
template <class Use>
std::size_t for_each_number(const std::string& file, const ArrayInfo& array, const std::string& attribute,
                            const Use& use) {
  const auto found = array.attributes.find(attribute);
  if (found == array.attributes.end()) return 0;
  return std::visit(
      [&](const auto& values) -> std::size_t {
        if constexpr (std::is_same_v<std::decay_t<decltype(values)>, std::vector<std::string>>) {
          fail_packing(file, array, attribute, "is a text; it must be a number");
        } else {
          for (const auto value : values) use(value);
          return values.size();
        }
      },
      found->second);
}

/// An attribute of one number.
std::optional<double> one_number(const std::string& file, const ArrayInfo& array, const std::string& attribute) {
  double number = 0;
  const std::size_t count =
      for_each_number(file, array, attribute, [&](auto value) { number = static_cast<double>(value); });
  if (count == 0) return std::nullopt;
  if (count > 1) fail_packing(file, array, attribute, "has " + std::to_string(count) + " numbers; it must have one");
  if (!std::isfinite(number)) fail_packing(file, array, attribute, "is " + number_text(number) + ", not finite");
  return number;
}

/// The type by the attribute _Unsigned: netCDF-3 had no unsigned types.
NumberType packed_type(const ArrayInfo& array) {
  NumberType type = array.type;
  const std::vector<std::string> word = texts_of(array.attributes, "_Unsigned");
  if (word.size() != 1 || type.kind == NumberKind::real) return type;
  if (word.front() == "true" || word.front() == "True") type.kind = NumberKind::unsigned_integer;
  if (word.front() == "false" || word.front() == "False") type.kind = NumberKind::signed_integer;
  return type;
}

/// A number as an integer of the type, in 64 bits: signed numbers with their sign, others as they are. One of the other
/// sign, such as -1 in an array of unsigned bytes, is the number with the same bits. None if the type has no such
/// number.
std::optional<std::int64_t> as_integer(const NumberType& type, auto value) {
  const std::size_t bits = 8 * type.bytes;
  const std::uint64_t all = type.bytes == 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
  const auto lowest = -static_cast<std::int64_t>(all / 2) - 1;
  std::uint64_t word = 0;
  if constexpr (std::is_floating_point_v<decltype(value)>) {
    constexpr double kLimit = 9223372036854775808.0;  // 2^63
    if (std::floor(value) != value || value < -kLimit || value >= 2 * kLimit) return std::nullopt;
    word = value < 0 ? static_cast<std::uint64_t>(static_cast<std::int64_t>(value)) : static_cast<std::uint64_t>(value);
  } else {
    word = static_cast<std::uint64_t>(value);
  }
  const bool is_negative = value < 0;
  if (is_negative ? static_cast<std::int64_t>(word) < lowest : word > all) return std::nullopt;
  word &= all;
  if (type.kind == NumberKind::unsigned_integer || word <= all / 2) return static_cast<std::int64_t>(word);
  return static_cast<std::int64_t>(word | ~all);
}

/// A number as the type rounds it.
double as_real(const NumberType& type, auto value) {
  const auto number = static_cast<double>(value);
  if (type.bytes == 4) return static_cast<float>(number);
  if (type.bytes == 2) return half_to_float(float_to_half(static_cast<float>(number)));
  return number;
}

void add_gaps(const std::string& file, const ArrayInfo& array, const std::string& attribute, Packing& packing) {
  for_each_number(file, array, attribute, [&](auto value) {
    if (packing.type.kind == NumberKind::real) {
      const double gap = as_real(packing.type, value);
      if (!std::isnan(gap)) packing.gaps.push_back(gap);  // a stored NaN is a gap anyway
    } else if (const auto gap = as_integer(packing.type, value)) {
      packing.integer_gaps.push_back(*gap);
    }
  });
}

/// A limit of valid numbers, which may have been written as a number of the other sign.
double limit_of(const NumberType& type, auto value) {
  if (type.kind == NumberKind::real) return as_real(type, value);
  const auto integer = as_integer(type, value);
  if (!integer) return static_cast<double>(value);
  return type.kind == NumberKind::unsigned_integer ? static_cast<double>(static_cast<std::uint64_t>(*integer))
                                                   : static_cast<double>(*integer);
}

void set_range(const std::string& file, const ArrayInfo& array, Packing& packing) {
  std::vector<double> range;
  const auto collect = [&](auto value) { range.push_back(limit_of(packing.type, value)); };
  const std::size_t count = for_each_number(file, array, "valid_range", collect);
  if (count == 0) {
    range = {-std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
    const auto set_lowest = [&](auto value) { range[0] = limit_of(packing.type, value); };
    const auto set_highest = [&](auto value) { range[1] = limit_of(packing.type, value); };
    const std::size_t limits =
        for_each_number(file, array, "valid_min", set_lowest) + for_each_number(file, array, "valid_max", set_highest);
    if (limits == 0) return;
  } else if (count != 2) {
    fail_packing(file, array, "valid_range", "has " + std::to_string(count) + " numbers; it must have two");
  }
  packing.lowest = range[0];
  packing.highest = range[1];
  packing.has_range = true;
}

// --- decoding ---

constexpr std::size_t kBlock = 1024;  // elements that stay in the nearest cache

/// Stored elements, which need not be aligned.
template <class Stored>
struct Elements {
  const std::byte* bytes;

  Stored operator[](std::size_t i) const {
    Stored value;
    std::memcpy(&value, bytes + i * sizeof value, sizeof value);
    return value;
  }
};

template <class Stored>
Stored gap_of(const Packing& packing, std::size_t number) {
  if constexpr (std::is_floating_point_v<Stored>) {
    return static_cast<Stored>(packing.gaps[number]);
  } else {
    return static_cast<Stored>(packing.integer_gaps[number]);
  }
}

template <class Stored>
std::size_t gaps_in(const Packing& packing) {
  return std::is_floating_point_v<Stored> ? packing.gaps.size() : packing.integer_gaps.size();
}

template <class Stored, class Value>
void decode_block(const Packing& packing, Elements<Stored> stored, std::span<Value> out) {
  if (packing.is_scaled) {
    const double scale = packing.scale, offset = packing.offset;
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<Value>(static_cast<double>(stored[i]) * scale + offset);
    }
  } else {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<Value>(stored[i]);
  }
  for (std::size_t g = 0; g < gaps_in<Stored>(packing); ++g) {
    const auto gap = gap_of<Stored>(packing, g);
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = stored[i] == gap ? std::numeric_limits<Value>::quiet_NaN() : out[i];
    }
  }
}

template <class Stored, class Value>
void decode_as(const Packing& packing, std::span<const std::byte> stored, std::span<Value> out) {
  if (is_stored_as<Value>(packing)) {
    if (!out.empty()) std::memcpy(out.data(), stored.data(), out.size_bytes());
    return;
  }
  for (std::size_t begin = 0; begin < out.size(); begin += kBlock) {
    const std::span<Value> block = out.subspan(begin, std::min(kBlock, out.size() - begin));
    decode_block(packing, Elements<Stored>{stored.data() + begin * sizeof(Stored)}, block);
  }
}

/// Numbers of 16 bits become float32 first, which is exact.
template <class Value>
void decode_half(const Packing& packing, std::span<const std::byte> stored, std::span<Value> out) {
  const HalfFormat format = half_format(DType::float16);
  std::array<float, kBlock> wide{};
  for (std::size_t begin = 0; begin < out.size(); begin += kBlock) {
    const std::span<Value> block = out.subspan(begin, std::min(kBlock, out.size() - begin));
    format.widen(stored.data() + begin * kHalfBytes, wide.data(), block.size());
    decode_block(packing, Elements<float>{std::as_bytes(std::span(wide)).data()}, block);
  }
}

template <class Value>
void decode_any(const Packing& packing, std::span<const std::byte> stored, std::span<Value> out) {
  const std::size_t bytes = packing.type.bytes;
  switch (packing.type.kind) {
    case NumberKind::real:
      if (bytes == 2) return decode_half(packing, stored, out);
      return bytes == 4 ? decode_as<float>(packing, stored, out) : decode_as<double>(packing, stored, out);
    case NumberKind::signed_integer:
      if (bytes == 1) return decode_as<std::int8_t>(packing, stored, out);
      if (bytes == 2) return decode_as<std::int16_t>(packing, stored, out);
      return bytes == 4 ? decode_as<std::int32_t>(packing, stored, out) : decode_as<std::int64_t>(packing, stored, out);
    case NumberKind::unsigned_integer:
      if (bytes == 1) return decode_as<std::uint8_t>(packing, stored, out);
      if (bytes == 2) return decode_as<std::uint16_t>(packing, stored, out);
      return bytes == 4 ? decode_as<std::uint32_t>(packing, stored, out)
                        : decode_as<std::uint64_t>(packing, stored, out);
  }
}

/// The bits of a number without its sign have, as an integer, the order of magnitudes; NaN comes last. The loop has no
/// branches and is vectorized, unlike a search that ends early.
template <class Value>
LOCKSTEP_INLINE bool are_within(const Value* values, std::size_t count, Value largest) {
  using Bits = std::conditional_t<sizeof(Value) == 4, std::uint32_t, std::uint64_t>;
  constexpr Bits kMagnitude = ~Bits{0} >> 1;
  Bits most = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const Bits bits = __builtin_bit_cast(Bits, values[i]) & kMagnitude;
    most = bits > most ? bits : most;
  }
  return most <= __builtin_bit_cast(Bits, largest);
}

template <class Value>
bool are_within_at_level(std::span<const Value> values, double largest) {
  return at_level<are_within<Value>>(values.data(), values.size(), static_cast<Value>(largest));
}

}  // namespace

Packing packing_of(const std::string& file, const ArrayInfo& array) {
  Packing packing{.type = packed_type(array)};
  const auto scale = one_number(file, array, "scale_factor"), offset = one_number(file, array, "add_offset");
  packing.is_scaled = scale || offset;
  packing.scale = scale.value_or(1);
  packing.offset = offset.value_or(0);
  for (const char* const attribute : {"_FillValue", "missing_value"}) add_gaps(file, array, attribute, packing);
  set_range(file, array, packing);
  return packing;
}

void decode(const Packing& packing, std::span<const std::byte> stored, std::span<float> out) {
  decode_any(packing, stored, out);
}

void decode(const Packing& packing, std::span<const std::byte> stored, std::span<double> out) {
  decode_any(packing, stored, out);
}

bool are_all_within(std::span<const float> values, double largest) { return are_within_at_level(values, largest); }

bool are_all_within(std::span<const double> values, double largest) { return are_within_at_level(values, largest); }

}  // namespace lockstep::arrays
