// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/nccl/types.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <type_traits>

namespace lockstep::fake_gpu::nccl {

namespace {

struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;
  explicit BFloat16(float value) {
    const auto wide = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounding = 0x7fff + ((wide >> 16) & 1);  // rounding to the nearest, ties to even
    const std::uint32_t quiet_bit = 0x40;
    bits = static_cast<std::uint16_t>(std::isnan(value) ? (wide >> 16) | quiet_bit : (wide + rounding) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};

/// The type in which values are combined. Signed integers wrap around, as those of a GPU do.
template <class T>
struct Sum {
  using Type = T;
};
template <>
struct Sum<_Float16> {
  using Type = float;
};
template <>
struct Sum<BFloat16> {
  using Type = float;
};

template <class T>
T wrapping(ncclRedOp_t op, T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using Wide = std::conditional_t<(sizeof(T) < sizeof(std::uint32_t)), std::uint32_t, std::make_unsigned_t<T>>;
    const auto x = static_cast<Wide>(a);
    const auto y = static_cast<Wide>(b);
    return static_cast<T>(op == ncclProd ? x * y : x + y);
  } else {
    return op == ncclProd ? a * b : a + b;
  }
}

template <class T>
T combine(ncclRedOp_t op, T a, T b) {
  if (op != ncclMax && op != ncclMin) return wrapping(op, a, b);
  if constexpr (std::is_floating_point_v<T>) {  // one that is not a number is left out
    return op == ncclMax ? std::fmax(a, b) : std::fmin(a, b);
  } else {
    return op == ncclMax ? std::max(a, b) : std::min(a, b);
  }
}

template <class T>
T load(const std::byte* from, std::size_t index) {
  T value;
  std::memcpy(&value, from + index * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void reduce_values(std::span<const std::byte* const> sources, std::byte* target, std::size_t count, ncclRedOp_t op) {
  using Wide = typename Sum<T>::Type;
  for (std::size_t i = 0; i < count; ++i) {
    auto sum = static_cast<Wide>(load<T>(sources[0], i));
    for (const std::byte* const source : sources.subspan(1))
      sum = combine(op, sum, static_cast<Wide>(load<T>(source, i)));
    if (op == ncclAvg) sum = static_cast<Wide>(sum / static_cast<Wide>(sources.size()));
    const auto result = static_cast<T>(sum);
    std::memcpy(target + i * sizeof(T), &result, sizeof(T));
  }
}

using Reduce = void (*)(std::span<const std::byte* const>, std::byte*, std::size_t, ncclRedOp_t);

struct TypeRow {
  ncclDataType_t type;
  const char* name;
  std::size_t bytes;
  Reduce reduce;
};

constexpr TypeRow kTypes[] = {
    {ncclInt8, "int8", 1, reduce_values<std::int8_t>},    {ncclUint8, "uint8", 1, reduce_values<std::uint8_t>},
    {ncclInt32, "int32", 4, reduce_values<std::int32_t>}, {ncclUint32, "uint32", 4, reduce_values<std::uint32_t>},
    {ncclInt64, "int64", 8, reduce_values<std::int64_t>}, {ncclUint64, "uint64", 8, reduce_values<std::uint64_t>},
    {ncclFloat16, "float16", 2, reduce_values<_Float16>}, {ncclFloat32, "float32", 4, reduce_values<float>},
    {ncclFloat64, "float64", 8, reduce_values<double>},   {ncclBfloat16, "bfloat16", 2, reduce_values<BFloat16>},
};

struct OpRow {
  ncclRedOp_t op;
  const char* name;
};

constexpr OpRow kOps[] = {
    {ncclSum, "sum"}, {ncclProd, "product"}, {ncclMax, "max"}, {ncclMin, "min"}, {ncclAvg, "average"}};

const TypeRow* find(ncclDataType_t type) {
  const auto found =
      std::find_if(std::begin(kTypes), std::end(kTypes), [=](const TypeRow& row) { return row.type == type; });
  return found != std::end(kTypes) ? found : nullptr;
}

const OpRow* find(ncclRedOp_t op) {
  const auto found = std::find_if(std::begin(kOps), std::end(kOps), [=](const OpRow& row) { return row.op == op; });
  return found != std::end(kOps) ? found : nullptr;
}

}  // namespace

std::size_t size_of(ncclDataType_t type) { return find(type) != nullptr ? find(type)->bytes : 0; }
const char* name_of(ncclDataType_t type) { return find(type) != nullptr ? find(type)->name : "unknown"; }
bool is_known(ncclRedOp_t op) { return find(op) != nullptr; }
const char* name_of(ncclRedOp_t op) { return is_known(op) ? find(op)->name : "unknown"; }

void reduce(std::span<const std::byte* const> sources, std::byte* target, std::size_t count, ncclDataType_t type,
            ncclRedOp_t op) {
  const TypeRow* const row = find(type);
  if (row == nullptr) throw std::logic_error("a type that does not exist");
  row->reduce(sources, target, count, op);
}

}  // namespace lockstep::fake_gpu::nccl
