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

void require_device(const lockstep_array& array, const mpi::Gpu* gpu) {
  if (array.device != LOCKSTEP_HOST && array.device != LOCKSTEP_GPU) {
    throw DataError(quoted_name(array) + " has the device " + std::to_string(array.device) +
                    ", which is none; use LOCKSTEP_HOST or LOCKSTEP_GPU");
  }
  if (array.device == LOCKSTEP_GPU && gpu == nullptr) {
    throw DataError(
        quoted_name(array) +
        " is in the memory of a GPU (LOCKSTEP_GPU), but the run computes on the CPU; set run.device=cuda, or "
        "use an array in host memory");
  }
}

/// @throws DataError  the memory is not where the array says
void require_place(const lockstep_array& array, const mpi::Gpu& gpu) {
  const mpi::MemoryPlace place = gpu.place_of(array.data);
  if (array.device == LOCKSTEP_HOST) {
    if (place.is_host) return;
    throw DataError(quoted_name(array) + " is in the memory of GPU " + std::to_string(place.device) +
                    ", but its device is LOCKSTEP_HOST; set it to LOCKSTEP_GPU");
  }
  if (place.device < 0) {
    throw DataError(quoted_name(array) + " is in host memory, but its device is LOCKSTEP_GPU; set it to LOCKSTEP_HOST");
  }
  if (place.device == gpu.index()) return;
  throw DataError(quoted_name(array) + " is in the memory of GPU " + std::to_string(place.device) +
                  ", but the run computes on GPU " + std::to_string(gpu.index()));
}

at::Tensor tensor_over(const lockstep_array& array, const std::vector<std::int64_t>& sizes,
                       const std::vector<std::int64_t>& strides, at::ScalarType type, const mpi::Gpu* gpu) {
  at::Device device(at::kCPU);
  if (array.device == LOCKSTEP_GPU) device = {at::kCUDA, static_cast<at::DeviceIndex>(gpu->index())};
  return at::for_blob(array.data, sizes)
      .strides(strides)
      .options(at::TensorOptions(type).device(device))
      .target_device(device)
      .make_tensor();
}

at::Tensor copy_of(const lockstep_array& array, const std::vector<std::int64_t>& sizes, at::ScalarType type) {
  const at::Tensor copy = at::empty(sizes, at::TensorOptions(type));
  auto* target = static_cast<std::byte*>(copy.mutable_data_ptr());
  const std::size_t bytes = c10::elementSize(type);
  for_each_element(array, [&](const std::byte* place) {
    std::memcpy(target, place, bytes);
    target += bytes;
  });
  return copy;
}

}  // namespace

at::Tensor tensor_of(const lockstep_array& array, const mpi::Gpu* gpu) {
  const at::ScalarType type = type_of(array);
  const std::vector<std::int64_t> sizes = sizes_of(array);
  require_device(array, gpu);
  const std::int64_t count =
      std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<std::int64_t>());
  if (count == 0) return at::empty(sizes, at::TensorOptions(type));
  if (array.data == nullptr) throw DataError(quoted_name(array) + " has elements, but its data are NULL");
  if (gpu != nullptr) require_place(array, *gpu);
  const std::vector<std::int64_t> strides = tensor_strides(array, static_cast<std::int64_t>(c10::elementSize(type)));
  if (!strides.empty()) return tensor_over(array, sizes, strides, type, gpu);
  if (array.device == LOCKSTEP_GPU) {
    throw DataError(
        quoted_name(array) +
        " has strides, or an address, that are negative or no multiple of its elements, which is possible in "
        "host memory only; copy it to an array without gaps");
  }
  note_copy(array);
  return copy_of(array, sizes, type);
}

SampleTensors tensors_of(std::span<const lockstep_array> arrays, const mpi::Gpu* gpu) {
  SampleTensors tensors;
  tensors.reserve(arrays.size());
  for (const lockstep_array& array : arrays) {
    if (array.name == nullptr) throw DataError("array number " + std::to_string(tensors.size()) + " has no name");
    tensors.emplace_back(array.name, tensor_of(array, gpu));
  }
  return tensors;
}

void write_back(const lockstep_array& array, const at::Tensor& written) {
  if (written.numel() == 0 || written.const_data_ptr() == array.data) return;
  const auto bytes = static_cast<std::size_t>(written.element_size());
  const auto* source = static_cast<const std::byte*>(written.const_data_ptr());
  for_each_element(array, [&](std::byte* place) {
    std::memcpy(place, source, bytes);
    source += bytes;
  });
}

}  // namespace lockstep::embed
