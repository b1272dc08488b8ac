// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/dataset.hpp>

#include "arrays/array_file.hpp"

namespace lockstep::data {

/// The bytes of chunks that this process has unpacked and used, for SampleChunks::chunk_bytes.
inline ChunkBytes bytes_of_chunks() {
  const arrays::ChunkUse use = arrays::chunk_use();
  return {.unpacked = static_cast<double>(use.unpacked), .used = static_cast<double>(use.used)};
}

}  // namespace lockstep::data
