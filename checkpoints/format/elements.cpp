// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/format/elements.hpp"

namespace lockstep::checkpoints {

std::int64_t element_count(const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1;
  for (const std::int64_t dimension : shape) count *= dimension;
  return count;
}

bool is_complex(DType dtype) { return dtype == DType::complex64 || dtype == DType::complex128; }

bool is_floating(DType dtype) {
  return dtype == DType::float32 || dtype == DType::float64 || dtype == DType::float16 || dtype == DType::bfloat16 ||
         is_complex(dtype);
}

std::int64_t number_count(const Array& array) {
  return static_cast<std::int64_t>(array.bytes.size() / size_of(array.dtype)) * (is_complex(array.dtype) ? 2 : 1);
}

std::vector<std::int64_t> position_of(std::int64_t element, const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> position(shape.size());
  for (std::size_t i = shape.size(); i-- > 0;) {
    position[i] = element % shape[i];
    element /= shape[i];
  }
  return position;
}

}  // namespace lockstep::checkpoints
