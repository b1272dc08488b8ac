// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/optim/flat_parameters.hpp>

#include <algorithm>

namespace lockstep::optim {

/// Elements [begin, begin + count) of a block; count 0: nothing.
struct Range {
  std::int64_t begin;
  std::int64_t count;
};

/// The part of `segment` that lies in the slice of this rank.
inline Range part_in_slice(const Block& block, const Segment& segment) {
  const std::int64_t begin = std::max(segment.offset, block.slice_begin);
  const std::int64_t end = std::min(segment.offset + segment.count, block.slice_end);
  return {begin, std::max<std::int64_t>(end - begin, 0)};
}

/// Calls `visit(elements, count)`, with elements a `float*` or `double*`, for the part in this rank's slice of every
/// gradient that there is.
template <class Visit>
void for_each_gradient(const FlatParameters& parameters, Visit visit) {
  const auto blocks = parameters.blocks();
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    for (std::size_t s = 0; s < blocks[b].segments.size(); ++s) {
      const Segment& segment = blocks[b].segments[s];
      const Range part = part_in_slice(blocks[b], segment);
      const std::byte* gradient = parameters.gradient(b, s);
      if (gradient == nullptr || part.count == 0) continue;
      const std::int64_t skipped = part.begin - segment.offset;
      if (blocks[b].dtype == DType::float32) {
        visit(reinterpret_cast<const float*>(gradient) + skipped, part.count);
      } else {
        visit(reinterpret_cast<const double*>(gradient) + skipped, part.count);
      }
    }
  }
}

}  // namespace lockstep::optim
