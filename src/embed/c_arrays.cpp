// SPDX-License-Identifier: BSD-3-Clause
#include "embed/c_arrays.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/log/log.hpp>

#include <torch/types.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "core/text/text.hpp"

namespace lockstep::embed {

namespace {

// The types of LOCKSTEP_FLOAT64 and so on, which begin with 1.
constexpr std::array kTypes = {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kByte};

std::string quoted_name(const lockstep_array& array) {
  return array.name == nullptr ? "an array without a name" : "'" + std::string(array.name) + "'";
}

at::ScalarType type_of(const lockstep_array& array) {
  if (array.type >= 1 && array.type <= static_cast<int>(kTypes.size())) {
    return kTypes[static_cast<std::size_t>(array.type - 1)];
  }
  throw DataError(quoted_name(array) + " has the type " + std::to_string(array.type) +
                  ", which is none; use LOCKSTEP_FLOAT32, for example");
}

std::vector<std::int64_t> sizes_of(const lockstep_array& array) {
  if (array.rank < 1 || array.rank > LOCKSTEP_MAX_RANK) {
    throw DataError(quoted_name(array) + " has " + std::to_string(array.rank) + " dimensions; 1 to " +
                    std::to_string(LOCKSTEP_MAX_RANK) + " are possible");
  }
  const std::vector<std::int64_t> sizes(array.sizes, array.sizes + array.rank);
  if (std::ranges::min(sizes) < 0) {
    throw DataError(quoted_name(array) + " has the sizes " + shape_text(sizes) + ", one of which is negative");
  }
  return sizes;
}

/// Strides in elements; none = they are not those of a tensor.
std::vector<std::int64_t> tensor_strides(const lockstep_array& array, std::int64_t element_bytes) {
  std::vector<std::int64_t> strides;
  for (int d = 0; d < array.rank; ++d) {
    if (array.sizes[d] > 1 && (array.strides[d] < 0 || array.strides[d] % element_bytes != 0)) return {};
    strides.push_back(array.sizes[d] > 1 ? array.strides[d] / element_bytes : 1);
  }
  const bool is_aligned =
      reinterpret_cast<std::uintptr_t>(array.data) % static_cast<std::uintptr_t>(element_bytes) == 0;
  return is_aligned ? strides : std::vector<std::int64_t>{};
}

/// Calls `visit` with the place of each element, in row-major order.
void for_each_element(const lockstep_array& array, const std::function<void(std::byte*)>& visit) {
  std::vector<std::int64_t> index(static_cast<std::size_t>(array.rank), 0);
  auto* place = static_cast<std::byte*>(array.data);
  for (;;) {
    visit(place);
    int d = array.rank - 1;
    for (; d >= 0; --d) {
      place += array.strides[d];
      if (++index[static_cast<std::size_t>(d)] < array.sizes[d]) break;
      place -= array.strides[d] * array.sizes[d];
      index[static_cast<std::size_t>(d)] = 0;
    }
    if (d < 0) return;
  }
}

/// Says once for the process that arrays are copied.
void note_copy(const lockstep_array& array) {
  static std::atomic<bool> is_said = false;
  if (is_said.exchange(true)) return;
  log::info("the array " + quoted_name(array) +
            " has strides that are negative or no multiple of its elements: such arrays are copied in each call");
}

}  // namespace

at::Tensor tensor_of(const lockstep_array& array) {
  const at::ScalarType type = type_of(array);
  const std::vector<std::int64_t> sizes = sizes_of(array);
  const auto bytes = static_cast<std::int64_t>(c10::elementSize(type));
  const std::int64_t count =
      std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<std::int64_t>());
  if (count == 0) return at::empty(sizes, at::TensorOptions(type));
  if (array.data == nullptr) throw DataError(quoted_name(array) + " has elements, but its data are NULL");
  const std::vector<std::int64_t> strides = tensor_strides(array, bytes);
  if (!strides.empty()) return at::from_blob(array.data, sizes, strides, at::TensorOptions(type));
  note_copy(array);
  const at::Tensor copy = at::empty(sizes, at::TensorOptions(type));
  auto* target = static_cast<std::byte*>(copy.mutable_data_ptr());
  for_each_element(array, [&](const std::byte* place) {
    std::memcpy(target, place, static_cast<std::size_t>(bytes));
    target += bytes;
  });
  return copy;
}

SampleTensors tensors_of(std::span<const lockstep_array> arrays) {
  SampleTensors tensors;
  tensors.reserve(arrays.size());
  for (const lockstep_array& array : arrays) {
    if (array.name == nullptr) throw DataError("array number " + std::to_string(tensors.size()) + " has no name");
    tensors.emplace_back(array.name, tensor_of(array));
  }
  return tensors;
}

void write_to(const lockstep_array& array, const at::Tensor& values) {
  const std::vector<std::int64_t> sizes = sizes_of(array);
  if (values.sizes() != at::IntArrayRef(sizes)) {
    throw DataError(quoted_name(array) + " has the sizes " + shape_text(sizes) + ", but the values " +
                    shape_text(values.sizes().vec()));
  }
  const at::Tensor target = tensor_of(array);
  const c10::InferenceMode inference;
  target.copy_(values);
  if (values.numel() == 0 || target.const_data_ptr() == array.data) return;
  const auto bytes = static_cast<std::size_t>(target.element_size());
  const auto* source = static_cast<const std::byte*>(target.const_data_ptr());
  for_each_element(array, [&](std::byte* place) {
    std::memcpy(place, source, bytes);
    source += bytes;
  });
}

}  // namespace lockstep::embed
