// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>

#include "data/fields/field_series.hpp"

namespace lockstep::data {

/// The part of an array that a chunk holds.
struct ChunkSize {
  std::int64_t trajectories = 1;
  std::int64_t steps = 1;
};
ChunkSize chunk_size_of(const FieldVariable& variable);

/// The variable of the inputs and targets that costs most in a random order: its chunks have the most bytes of other
/// samples for each sample.
const FieldVariable& costliest_variable(const FieldPair& pair);

/// Whether an array of a file is unpacked in chunks. Members of npz files stay in memory as a whole.
bool is_in_chunks(const std::string& file, const FieldVariable& variable);

/// "4 steps", "16 rows" or "4 steps of 2 trajectories".
std::string chunk_size_text(const FieldVariable& variable);

/// Bytes of unpacked elements of the arrays that are stored in chunks.
struct ChunkCost {
  double unpacked = 0;  ///< chunks that a sample needs, the mean over the windows
  double used = 0;      ///< elements of these chunks that the sample contains
  double all = 0;       ///< all chunks of the files with points of the samples

  /// The bytes that are unpacked for each byte that samples use, if no chunk stays in memory. 1 without chunks.
  double factor() const { return used > 0 ? unpacked / used : 1; }
};
ChunkCost chunk_cost_of(const FieldDescription& description);

}  // namespace lockstep::data
