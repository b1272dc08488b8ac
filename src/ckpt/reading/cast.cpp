// SPDX-License-Identifier: BSD-3-Clause
#include "ckpt/reading/cast.hpp"

#include <cstring>
#include <memory>
#include <vector>

namespace lockstep::ckpt {

namespace {

template <class T>
void put(std::byte* bytes, std::int64_t i, T value) {
  std::memcpy(bytes + static_cast<std::size_t>(i) * sizeof value, &value, sizeof value);
}

}  // namespace

bool is_real_floating(DType dtype) { return is_floating(dtype) && !is_complex(dtype); }

std::pair<Array, std::byte*> new_array(DType dtype, const std::vector<std::int64_t>& shape) {
  const auto bytes = static_cast<std::size_t>(element_count(shape)) * size_of(dtype);
  auto memory = std::make_shared<std::vector<std::byte>>(bytes);
  std::byte* const data = memory->data();
  return {Array{.dtype = dtype, .shape = shape, .bytes = std::span(data, bytes), .owner = std::move(memory)}, data};
}

void store(DType dtype, std::byte* bytes, std::int64_t i, double value) {
  switch (dtype) {
    case DType::float64:
      return put(bytes, i, value);
    case DType::float16:
      return put(bytes, i, float_to_half(static_cast<float>(value)));
    case DType::bfloat16:
      return put(bytes, i, float_to_bfloat16(static_cast<float>(value)));
    default:
      return put(bytes, i, static_cast<float>(value));
  }
}

Array cast_to(const Array& array, DType dtype) {
  auto [result, bytes] = new_array(dtype, array.shape);
  const std::int64_t count = element_count(array.shape);
  with_loader(array.dtype, [&, data = bytes](auto load) {
    for (std::int64_t i = 0; i < count; ++i) store(dtype, data, i, static_cast<double>(load(array.bytes.data(), i)));
  });
  return result;
}

bool overflows(const Array& before, const Array& after) {
  return statistics_of(after).infs > statistics_of(before).infs;
}

}  // namespace lockstep::ckpt
