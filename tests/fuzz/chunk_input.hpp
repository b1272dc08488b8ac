// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/error.hpp>

#include <cstddef>
#include <cstdlib>
#include <span>
#include <vector>

#include "arrays/chunk_filters.hpp"

namespace lockstep::fuzz {

/// Unpacks the chunk that bytes describe, as long as the rules of a chunk hold: an error, or a chunk of the stated
/// size.
///
/// The first byte is the number of filters, modulo 4. The next two have the size of the unpacked chunk, and the fourth
/// one the filters that were skipped. A filter is its number, modulo 6, the number of its parameters, modulo 6, and the
/// parameters, each as a byte, or as four bytes after a byte 255. The rest are the bytes of the chunk.
/// @return  whether it was unpacked
inline bool unpack_chunk(std::span<const std::byte> input) {
  constexpr H5Z_filter_t kNumbers[] = {H5Z_FILTER_DEFLATE, H5Z_FILTER_SHUFFLE, H5Z_FILTER_FLETCHER32,
                                       arrays::kLzf,       arrays::kZstd,      arrays::kBitshuffle};
  const auto next = [&input]() -> unsigned {
    if (input.empty()) return 0;
    const auto byte = std::to_integer<unsigned>(input.front());
    input = input.subspan(1);
    return byte;
  };
  const auto word = [&next](int bytes) {
    unsigned value = 0;
    for (int i = 0; i < bytes; ++i) value |= next() << (8 * i);
    return value;
  };
  std::vector<arrays::SetFilter> filters(next() % 4);
  const std::size_t bytes = word(2);
  const unsigned skipped = next();
  for (arrays::SetFilter& filter : filters) {
    filter.number = kNumbers[next() % 6];
    filter.values.resize(next() % 6);
    for (unsigned& value : filter.values) {
      value = next();
      if (value == 255) value = word(4);
    }
  }
  if (!arrays::can_undo(filters)) return false;
  try {
    if (arrays::undo_filters(filters, skipped, {input.begin(), input.end()}, bytes).size() != bytes) std::abort();
  } catch (const DataError&) {
    return false;
  }
  return true;
}

}  // namespace lockstep::fuzz
