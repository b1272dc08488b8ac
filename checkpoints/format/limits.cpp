// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/format/limits.hpp"

#include <algorithm>
#include <limits>

namespace lockstep::checkpoints {

bool is_part(const std::string& part) {
  if (part.empty() || part.size() > kMaxPartBytes || part == "." || part == "..") return false;
  return std::none_of(part.begin(), part.end(), [](unsigned char c) { return c == '/' || c < 0x20 || c == 0x7F; });
}

bool is_path(const std::string& path) {
  if (path.empty() || path[0] != '/') return false;
  std::size_t depth = 0;
  for (std::size_t begin = 1; begin <= path.size(); ++depth) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    if (!is_part(path.substr(begin, end - begin))) return false;
    begin = end + 1;
  }
  return depth <= kMaxDepth;
}

std::optional<std::uint64_t> nbytes_of(DType dtype, const std::vector<std::int64_t>& shape) {
  if (shape.size() > kMaxDimensions) return std::nullopt;
  std::uint64_t bytes = size_of(dtype);
  bool is_empty = false;
  for (const std::int64_t dimension : shape) {
    if (dimension < 0) return std::nullopt;
    is_empty = is_empty || dimension == 0;
    if (!is_empty && __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(dimension), &bytes)) return std::nullopt;
  }
  if (is_empty) return 0;
  return bytes <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) ? std::optional(bytes)
                                                                                       : std::nullopt;
}

}  // namespace lockstep::checkpoints
