// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/store/finite.hpp"

#include <cstring>
#include <vector>

#include "checkpoints/store/checkpoint_index.hpp"

namespace lockstep::checkpoints {

namespace {

/// A number is not finite when all bits of its exponent are set.
struct Exponent {
  std::size_t bytes = 0;  ///< size of the number in bytes
  std::uint64_t mask = 0;
};

Exponent exponent_of(DType dtype) {
  switch (dtype) {
    case DType::float16:
      return {2, 0x7C00};
    case DType::bfloat16:
      return {2, 0x7F80};
    case DType::float32:
    case DType::complex64:
      return {4, 0x7F800000};
    case DType::float64:
    case DType::complex128:
      return {8, 0x7FF0000000000000};
    default:
      return {};
  }
}

/// The first element with a part that is not finite; their number when there is none.
std::size_t first_nonfinite(const Array& array) {
  const auto [bytes, mask] = exponent_of(array.dtype);
  const std::size_t size = size_of(array.dtype);
  for (std::size_t position = 0; bytes != 0 && position + bytes <= array.bytes.size(); position += bytes) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, array.bytes.data() + position, bytes);
    if ((bits & mask) == mask) return position / size;
  }
  return array.bytes.size() / size;
}

std::string index_text(std::size_t element, const std::vector<std::int64_t>& shape) {
  std::string text;
  for (auto dimension = shape.rbegin(); dimension != shape.rend(); ++dimension) {
    const auto length = static_cast<std::size_t>(*dimension);
    text = std::to_string(element % length) + (text.empty() ? "" : ", ") + text;
    element /= length;
  }
  return "[" + text + "]";
}

}  // namespace

std::string nonfinite_in(const std::string& path, const std::string& group) {
  std::string words;
  std::size_t others = 0;
  for (const ArrayInfo& info : read_checkpoint_index(path).arrays) {
    const bool counts = info.path.starts_with(group + "/") && info.first_path.empty();
    if (!counts || info.statistics.nans + info.statistics.infs == 0) continue;
    if (!words.empty()) {
      ++others;
      continue;
    }
    const Array array = read_array(path, info.path);
    words = info.path + " holds " + std::to_string(info.statistics.nans) + " NaN and " +
            std::to_string(info.statistics.infs) + " infinite elements, the first at " +
            index_text(first_nonfinite(array), array.shape);
  }
  return others == 0 ? words : words + ", and " + std::to_string(others) + " more arrays likewise";
}

}  // namespace lockstep::checkpoints
